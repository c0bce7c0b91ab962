"""pipeline.corpora.embedded: disjoint splits, independent shards, bounded memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.context import Context
from pipeline.corpora.embedded import SPLITS, EmbeddedSettings, generate, generated, split_of
from pipeline.corpora.splitting import hash_of
from pipeline.parsing.linearisation import linearise
from pipeline.parsing.trees import parse, words_of
from pipeline.settings import CleaningSettings
from pipeline.text.lines import read_lines
from tests.support.read_text import read_text

SMALL = EmbeddedSettings(train_pairs=700, dev_pairs=40, test_pairs=60, shard_pairs=300)


def test_sizes_shards_and_progress(tmp_path: Path) -> None:
    events = list[dict[str, object]]()
    corpus = generate(Context(tmp_path, events.append), SMALL.text("train"), CleaningSettings())
    assert corpus.languages == ("en", "de")
    assert [shard.pairs for shard in corpus.shards] == [300, 300, 100]
    assert {shard.collection for shard in corpus.shards} == {"generated"}
    assert events[-1] == {"done": 700, "total": 700, "unit": "pairs"}
    text = read_text(tmp_path / "text", SMALL)
    assert {split: len(text.pairs(split)) for split in SPLITS} == {"train": 700, "dev": 40, "test": 60}


def test_splits_are_disjoint_and_decided_by_the_sentence(tmp_path: Path) -> None:
    """Dev and test sentences are unique and not in training. No size or seed moves a sentence to another split."""
    other = SMALL.model_copy(update={"seed": 2, "test_pairs": 90})
    corpora = [read_text(tmp_path / "small", SMALL), read_text(tmp_path / "other", other)]
    sources = {(i, split): [source for source, _ in corpora[i].pairs(split)] for i in (0, 1) for split in SPLITS}
    for (_, split), sentences in sources.items():
        assert {split_of(hash_of(sentence)) for sentence in sentences} == {split}
        if split != "train":
            assert len(set(sentences)) == len(sentences)
    assert sources[0, "train"] != sources[1, "train"]
    assert len(set(sources[0, "train"])) > 0.97 * len(sources[0, "train"])


def test_another_process_generates_the_same_shard() -> None:
    call = "print([*generated(EmbeddedSettings().text('train'), 1, 300)])"
    code = f"from pipeline.corpora.embedded import *; {call}"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert there == f"{[*generated(SMALL.text('train'), 1, 300)]}\n"


def test_all_targets_share_their_sentences(tmp_path: Path) -> None:
    corpora = {
        target: read_text(tmp_path / target, SMALL.model_copy(update={"target": target}))
        for target in ("de", "fr", "trees")
    }
    german, french, trees = (corpora[target].pairs("test") for target in ("de", "fr", "trees"))
    assert [source for source, _ in german] == [source for source, _ in french]
    gold = [parse(tree) for tree in read_lines(corpora["trees"].sets["test"].gold_trees)]
    for (source, symbols), tree in zip(trees, gold, strict=True):
        assert words_of(tree) == source.split(" ")
        assert linearise(tree) == symbols.split(" ")
    assert german != french
    for (source, _), (tokens, _) in zip(german, trees, strict=True):
        assert source.replace("'", "").split()[0] == tokens.split()[0]


@pytest.mark.parametrize("target", ["de", "fr"])
def test_generated_text_has_the_forecast_size(target: str, tmp_path: Path) -> None:
    settings = EmbeddedSettings(target=target, train_pairs=1500, dev_pairs=1, test_pairs=1)
    (shard,) = generate(Context(tmp_path), settings.text("train"), CleaningSettings()).shards
    assert settings.amount().train_pairs == shard.pairs
    size_bytes = shard.source.stat().st_size + shard.target.stat().st_size
    assert settings.amount().text_bytes == pytest.approx(size_bytes, rel=0.02)
    assert EmbeddedSettings(target="trees").amount().text_bytes is None


def test_a_split_does_not_depend_on_the_sizes_of_others() -> None:
    larger = SMALL.model_copy(update={"test_pairs": 90})
    assert [larger.text(split) == SMALL.text(split) for split in SPLITS] == [True, True, False]
