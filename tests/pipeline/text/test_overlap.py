"""pipeline.text.overlap: evaluation sentences in the training text are counted, however it is cut into shards."""

import logging
from pathlib import Path

import pytest

from pipeline.context import Context
from pipeline.text.normalisation import normalised
from pipeline.text.overlap import Overlap, count
from tests.support.parallel_text import corpus_of, set_of

TRAIN = [(f"sentence {i}", f"Satz {i}") for i in range(10)]
NEW = [(f"new {i}", f"neu {i}") for i in range(400)]


@pytest.mark.parametrize("shard_pairs", [3, 10])
@pytest.mark.parametrize(
    ("held_out", "counts", "warns"),
    [
        (NEW, (0, 0, 0), False),
        ([*NEW, TRAIN[0], ("new", "Satz 9")], (1, 2, 1), False),
        ([*NEW[:9], TRAIN[9]], (1, 1, 1), True),
        ([*NEW[:9], ("sentence 2", "anders")], (1, 0, 0), True),
        ([*NEW[:9], ("other", "Satz 2")], (0, 1, 0), True),
        ([("sentence 1", "Satz 2"), (" sentence\t3 \r", "Satz 3"), TRAIN[4], TRAIN[4]], (4, 4, 3), True),
    ],
)
def test_sentences_of_the_training_text_are_counted(
    tmp_path: Path,
    here: Context,
    caplog: pytest.LogCaptureFixture,
    held_out: list[tuple[str, str]],
    counts: tuple[int, int, int],
    warns: bool,
    shard_pairs: int,
) -> None:
    """A pair counts if both its sides are one training pair's. More than 1% of a set is warned of."""
    corpus = corpus_of(tmp_path / "corpus", TRAIN, shard_pairs=shard_pairs)
    sets = [set_of(tmp_path / "dev", NEW), set_of(tmp_path / "test", held_out, "test")]
    with caplog.at_level(logging.WARNING):
        dev, test = count(here, corpus, sets).load().sets
    assert dev == Overlap("dev", 400, 0, 0, 0)
    assert test == Overlap("test", len(held_out), *counts)
    assert [record.args[0].name for record in caplog.records] == ["test"] * warns
    found = [line.split("\t") for line in (here.folder / "overlap.tsv").read_text().splitlines()]
    assert {name for name, *_ in found} <= {"test"}
    assert tuple(sum(row[2] == kind for row in found) for kind in ("source", "target", "pair")) == counts
    sentences = {*TRAIN, *(sentence for pair in TRAIN for sentence in pair)}
    for _, number, kind in found:
        pair = tuple(map(normalised, held_out[int(number) - 1]))
        assert {"source": pair[0], "target": pair[1], "pair": pair}[kind] in sentences


def test_trees_over_other_words_are_no_leak(tmp_path: Path, here: Context, caplog: pytest.LogCaptureFixture) -> None:
    corpus = corpus_of(tmp_path / "corpus", [("a dog", "(NP XX XX )NP")], symbols=["XX"])
    assert count(here, corpus, [set_of(tmp_path / "dev", [("a cat", "(NP XX XX )NP")])]).load().sets[0].target == 1
    assert not caplog.records
