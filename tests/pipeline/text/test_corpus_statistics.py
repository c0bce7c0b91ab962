"""pipeline.text.corpus_statistics: every figure is checked against a count of the text itself."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from model.config import END_ID, UNKNOWN_ID
from pipeline.settings import PlanSettings
from pipeline.text.batching import plan_epoch
from pipeline.text.corpus_statistics import QUANTILES, CorpusStatistics, measure
from pipeline.text.encoding import EncodedSplit
from pipeline.text.lines import read_pairs
from pipeline.text.vocabulary import load
from tests.support.tiny_text import FLICKR_PAIRS, MAX_TOKENS, NOISE, PreparedText, prepare_text

Ids = tuple[list[int], list[int]]
PLAN = PlanSettings(budget_tokens=3000, micro_batches=2, seed=3)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory, parallel_text: Path) -> PreparedText:
    """Prepared text of two collections."""
    return prepare_text(tmp_path_factory.mktemp("text"), parallel_text)


@pytest.fixture(scope="module")
def statistics(text: PreparedText) -> CorpusStatistics:
    """The statistics of that text."""
    return measure("two collections", *text, PLAN)


@pytest.fixture(scope="module")
def cleaned(text: PreparedText) -> dict[str, list[Ids]]:
    """Token ids of all cleaned training pairs by collection, taken directly from sentencepiece."""
    processor = load(text.vocabulary.path)
    ids_of: dict[str, list[Ids]] = {}
    for shard in text.corpus.shards("train"):
        for source, target in read_pairs(shard.source, shard.target):
            ids = ([*processor.encode(source), END_ID], [*processor.encode(target), END_ID])
            ids_of.setdefault(shard.collection, []).append(ids)
    return ids_of


def short(pairs: list[Ids]) -> list[Ids]:
    """The pairs that encoding keeps."""
    return [pair for pair in pairs if max(map(len, pair)) <= MAX_TOKENS]


def test_pairs_read_kept_and_dropped(statistics: CorpusStatistics, cleaned: dict[str, list[Ids]]) -> None:
    """Only Europarl has noise; every pair read is either kept or dropped for one of four reasons."""
    flickr, europarl = statistics.collections
    left_out = {name: len(pairs) - len(short(pairs)) for name, pairs in cleaned.items()}
    assert 0 < left_out["europarl"] < len(cleaned["europarl"])
    assert (flickr.name, flickr.read, flickr.kept) == ("flickr", FLICKR_PAIRS, FLICKR_PAIRS - left_out["flickr"])
    assert (europarl.name, europarl.read) == ("europarl", len(cleaned["europarl"]) + len(NOISE))
    assert flickr.dropped == {"blank": 0, "too_long": 0, "ratio": 0, "too_many_tokens": left_out["flickr"]}
    assert europarl.dropped == {"blank": 2, "too_long": 1, "ratio": 1, "too_many_tokens": left_out["europarl"]}
    for collection in (flickr, europarl, statistics.total):
        assert collection.read == collection.kept + sum(collection.dropped.values())
    assert statistics.total.kept == statistics.train.pairs == sum(len(short(pairs)) for pairs in cleaned.values())


def test_unknown_characters(statistics: CorpusStatistics, cleaned: dict[str, list[Ids]], text: PreparedText) -> None:
    """The sign in the first pair, outside the vocabulary's sample, is counted as unknown, in dev too."""
    ids = {name: [i for pair in short(pairs) for side in pair for i in side] for name, pairs in cleaned.items()}
    assert ids["flickr"].count(UNKNOWN_ID) >= 2
    for collection in statistics.collections:
        assert collection.unknown_fraction == ids[collection.name].count(UNKNOWN_ID) / len(ids[collection.name])
    everything = [*ids["flickr"], *ids["europarl"]]
    assert statistics.train.unknown_fraction == everything.count(UNKNOWN_ID) / len(everything)
    (shard,), processor, dev = text.corpus.shards("dev"), load(text.vocabulary.path), statistics.splits[1]
    lines = [line for pair in read_pairs(shard.source, shard.target) for line in pair]
    ids_of_dev = [i for line in lines for i in (*processor.encode(line), END_ID)]
    assert (dev.name, dev.pairs) == ("dev", len(lines) // 2)
    assert dev.unknown_fraction == ids_of_dev.count(UNKNOWN_ID) / len(ids_of_dev) > 0
    assert dev.source_tokens_a_pair + dev.target_tokens_a_pair == pytest.approx(len(ids_of_dev) / dev.pairs)


def test_lengths_of_both_sides(statistics: CorpusStatistics, cleaned: dict[str, list[Ids]]) -> None:
    """The histogram counts sentences by tokens; each quantile is the smallest length that reaches it."""
    pairs = [pair for name in cleaned for pair in short(cleaned[name])]
    for i, (side, language) in enumerate(zip(statistics.lengths, ("en", "de"), strict=True)):
        lengths = [len(pair[i]) for pair in pairs]
        assert side.language == language
        assert {n: count for n, count in enumerate(side.sentences) if count} == Counter(lengths)
        assert len(side.sentences) == max(lengths) + 1
        assert side.mean == pytest.approx(sum(lengths) / len(lengths))
        levels = np.quantile(lengths, QUANTILES, method="inverted_cdf").tolist()
        assert list(side.quantiles.values()) == levels
    assert statistics.train.source_tokens_a_pair == pytest.approx(statistics.lengths[0].mean)
    assert statistics.train.target_tokens_a_pair == pytest.approx(statistics.lengths[1].mean)


def test_padding_is_that_of_the_plan(statistics: CorpusStatistics, text: PreparedText) -> None:
    """The figures are those of a training's plan of its first epoch and of the batches read by that plan."""
    split = EncodedSplit.open(text.dataset, "train")
    plan = plan_epoch(split.source_lengths, split.target_lengths, PLAN, epoch=0)
    assert statistics.plan.padding_fraction == plan.padding_fraction
    assert statistics.plan.updates == len(plan) > 2
    batches = [side for update in range(len(plan)) for rows in plan[update] for side in split.batch(rows)]
    real = sum(int((batch != 0).sum()) for batch in batches)
    assert statistics.plan.padding_fraction == pytest.approx(1 - real / sum(batch.numel() for batch in batches))
