"""Table 2 from artifacts: printed cells, measured cells, cells that were not run, and what stands beneath them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline.errors import UserError
from workflows import paper
from workflows.engine.dag import to_artifact
from workflows.tables import table2
from workflows.tables.measurements import Translation

Cell = Callable[..., Translation]


def test_measured_cells_come_from_files_and_the_rest_says_not_run(cell: Cell) -> None:
    """The row has the numbers of scores.json and cost.json; the other three of the four cells were not run."""
    inputs = cell("en-de", "base")
    base, big = table2.rows([inputs])[-2:]
    assert inputs.scores is not None
    scores = inputs.scores.load().test_sets["test_a"]
    assert base.name == "Transformer (base)"
    assert base.cells["en-de"].paper_bleu == scores.paper_bleu != scores.sacrebleu
    assert base.texts()[1:3] == [f"{scores.paper_bleu:.2f}", f"{scores.sacrebleu:.2f}"]
    assert base.texts()[5:7] == ["1.0e13", "3.1e12"]  # 100 s × 2 devices × 5e10, and as counted
    assert big.texts()[1:] == ["not run"] * 8
    assert base.texts()[3:5] == ["not run"] * 2


def test_printed_rows_have_the_paper_s_digits() -> None:
    """The literature's ten rows stand in the paper's order with its digits, and never in the sacreBLEU column."""
    rows = [row for row in table2.rows([]) if row.origin == "paper"]
    assert len(rows) == len(paper.TABLE_2) == 10
    texts = {row.name: [text.rstrip("\u2007") for text in row.texts()[1:]] for row in rows}
    assert texts["GNMT + RL ensemble"] == ["26.30", "", "41.16", "", "1.8e20", "", "1.1e21", ""]
    assert texts["ByteNet"] == ["23.75", "", "", "", "", "", "", ""]
    assert texts["Transformer (big) *"] == ["28.4", "", "41.8", "", "2.3e19", "", "2.3e19", ""]


def test_main_figures_are_those_of_the_measured_cells(cell: Cell) -> None:
    """One for each model that was run, models before the baseline; none for cells that were not run."""
    inputs = cell("en-de", "base")
    with_baseline = replace(inputs, word_by_word=inputs.scores)
    figures = table2.compute([with_baseline, cell("en-fr", "big")]).figures()
    assert [*figures] == ["paper BLEU EN-DE base", "paper BLEU EN-FR big", "paper BLEU EN-DE word-by-word"]
    assert figures["paper BLEU EN-DE base"] == inputs.main_bleu.paper_bleu


def test_word_by_word_substitution_has_its_row(cell: Cell) -> None:
    """Its scores stand above the models, without a training cost."""
    inputs = cell("en-de", "base")
    with_baseline = replace(inputs, word_by_word=inputs.scores)
    row = table2.rows([with_baseline])[-3]
    assert row.name == "word-by-word substitution"
    assert row.texts()[1] == table2.rows([inputs])[-2].texts()[1]
    assert row.texts()[3:] == [""] * 6


def test_a_missing_file_or_figure_is_named(cell: Cell) -> None:
    """The line says which file, and which figure of it."""
    inputs = cell("en-de", "base")
    cost = to_artifact(inputs.cost)
    cost.write_json("cost.json", cost.load().model_dump(exclude={"device_name"}))
    with pytest.raises(UserError, match=r"cost\.json has no 'device_name'; remove .* and make it again"):
        table2.compute([inputs])
    other = cell("en-de", "big")
    (to_artifact(other.training).folder / "run.json").unlink()
    with pytest.raises(UserError, match=r"run\.json is missing"):
        table2.compute([other])
