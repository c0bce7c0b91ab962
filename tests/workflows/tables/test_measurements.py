"""What is read of one cell: the label, the main test set, and samples at even distances."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline.text.lines import read_lines, write_lines
from workflows.tables.measurements import Translation

Cell = Callable[..., Translation]


@pytest.mark.parametrize(
    ("lines", "taken"),
    [(3, [0, 1, 2]), (10, list(range(10))), (19, list(range(10))), (25, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18])],
)
def test_ten_samples_at_even_distances(cell: Cell, lines: int, taken: list[int]) -> None:
    """The first sentence is one; each has the source, the reference and the translation of the same line."""
    inputs = cell("en-de", "base")
    for language in ("en", "de"):
        write_lines(inputs.corpus.shard_path("test_a", 0, language), [f"{language} {i}" for i in range(lines)])
    write_lines(inputs.hypotheses.folder / "test_a.de", [f"ours {i}" for i in range(lines)])
    samples = inputs.samples
    assert [(sample.source, sample.reference, sample.hypothesis) for sample in samples] == [
        (f"en {i}", f"de {i}", f"ours {i}") for i in taken
    ]


def test_a_cell_has_the_figures_of_its_files(cell: Cell) -> None:
    """Its pairs are those of all training shards, its test set is the first unless a split is named."""
    inputs = measured = cell("en-de", "base")
    assert (measured.label, measured.train_pairs, measured.test_set) == ("EN-DE base", 3, "test_a")
    assert (measured.averaged_updates, measured.settings) == ((300, 400), measured.run.settings)
    assert measured.main_bleu == inputs.scores.load().test_sets["test_a"]
    assert measured.baseline is None
    assert len(measured.metrics) == sum(1 for _ in read_lines(inputs.training.folder / "metrics.jsonl")) > 0
    assert measured.metrics[0]["update"] == 50
    assert measured.libraries == {}
    inputs.training.write_json("manifest.json", {"libraries": {"torch": "2.13.0"}})
    with_words = replace(inputs, word_by_word=inputs.scores)
    assert with_words.libraries == {"torch": "2.13.0"}
    assert with_words.baseline == measured.main_bleu
