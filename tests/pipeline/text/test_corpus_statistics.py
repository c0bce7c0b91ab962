"""pipeline.text.corpus_statistics: pairs and padding are compared with counts from the text itself."""

from pathlib import Path

import pytest

from model.config import END_ID
from pipeline.settings import TrainingSettings
from pipeline.text.batching import plan_epoch
from pipeline.text.corpus_statistics import CorpusStatistics, measure
from pipeline.text.encoding import EncodedSplit
from pipeline.text.lines import read_pairs
from pipeline.text.vocabulary import load
from tests.support.tiny_text import FLICKR_PAIRS, MAX_TOKENS, NOISE, PreparedText, prepare_text

Ids = tuple[list[int], list[int]]
PLAN = TrainingSettings(budget_tokens=3000, seed=3)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory, parallel_text: Path) -> PreparedText:
    return prepare_text(tmp_path_factory.mktemp("text"), parallel_text)


@pytest.fixture(scope="module")
def statistics(text: PreparedText) -> CorpusStatistics:
    return measure("two collections", *text, PLAN)


@pytest.fixture(scope="module")
def cleaned(text: PreparedText) -> dict[str, list[Ids]]:
    """Token ids of all cleaned training pairs by collection, taken directly from sentencepiece."""
    processor = load(text.vocabulary.path)
    ids_of: dict[str, list[Ids]] = {}
    for shard in text.corpus.shards:
        for source, target in read_pairs(shard.source, shard.target):
            ids = ([*processor.encode(source), END_ID], [*processor.encode(target), END_ID])
            ids_of.setdefault(shard.collection, []).append(ids)
    return ids_of


def short(pairs: list[Ids]) -> list[Ids]:
    return [pair for pair in pairs if max(map(len, pair)) <= MAX_TOKENS]


def test_pairs_read_kept_and_dropped(statistics: CorpusStatistics, cleaned: dict[str, list[Ids]]) -> None:
    flickr, europarl = statistics.collections
    left_out = {name: len(pairs) - len(short(pairs)) for name, pairs in cleaned.items()}
    assert 0 < left_out["europarl"] < len(cleaned["europarl"])
    assert (flickr.name, flickr.read, flickr.kept) == ("flickr", FLICKR_PAIRS, FLICKR_PAIRS - left_out["flickr"])
    assert (europarl.name, europarl.read) == ("europarl", len(cleaned["europarl"]) + len(NOISE))
    reasons = ("blank", "too_long", "ratio", "invalid", "too_many_tokens")
    assert flickr.dropped == dict(zip(reasons, (0, 0, 0, 0, left_out["flickr"]), strict=True))
    assert europarl.dropped == dict(zip(reasons, (2, 1, 1, 0, left_out["europarl"]), strict=True))
    for collection in (flickr, europarl, statistics.total):
        assert collection.read == collection.kept + sum(collection.dropped.values())
    assert statistics.total.kept == sum(len(short(pairs)) for pairs in cleaned.values())


def test_padding_is_that_of_the_plan(statistics: CorpusStatistics, text: PreparedText) -> None:
    split = EncodedSplit.open(text.dataset, "train")
    plan = plan_epoch(split.source_lengths, split.target_lengths, PLAN, epoch=0)
    assert statistics.plan.padding_fraction == plan.padding_fraction
    assert statistics.plan.updates == len(plan) > 2
    batches = [side for update in range(len(plan)) for rows in plan[update] for side in split.batch(rows)]
    real = sum(int((batch != 0).sum()) for batch in batches)
    assert statistics.plan.padding_fraction == pytest.approx(1 - real / sum(batch.numel() for batch in batches))
