"""Table 2 from artifacts: measured cells, and cells that were not run."""

from collections.abc import Callable

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
