from collections.abc import Callable

import pytest

from workflows.tables import table3
from workflows.tables.convergence import last_fall
from workflows.tables.table3 import RowTrainings

TrainedRow = Callable[..., RowTrainings]


def curve(*points: tuple[int, float]) -> list[dict[str, float]]:
    lines: list[dict[str, float]] = []
    for update, perplexity in points:
        lines += [{"update": update, "loss": 3.0}, {"update": update, "dev_perplexity": perplexity}]
    return lines


@pytest.mark.parametrize(
    ("points", "fall"),
    [
        ([(450, 20.0), (900, 10.0), (1000, 9.0)], 0.1),  # measured at nine tenths
        ([(900, 10.0), (950, 9.5), (1000, 9.0)], 0.1),  # and in between
        ([(900, 10.0), (1000, 11.0)], -0.1),
        ([(500, 32.0), (1000, 1.0)], 0.5),  # halves with every tenth
        ([(850, 8.0), (950, 2.0), (1000, 1.0)], 0.75),  # 4 at nine tenths
        ([(950, 10.0), (1000, 9.0)], None),
        ([(1000, 9.0)], None),
        ([], None),
    ],
)
def test_the_fall_is_that_over_the_last_tenth(points: list[tuple[int, float]], fall: float | None) -> None:
    """Between measurements the curve is interpolated exponentially. Without one before nine tenths, it is unknown."""
    assert last_fall(curve(*points), 1000) == (None if fall is None else pytest.approx(fall))


def test_a_row_still_falling_is_marked(trained_row: TrainedRow) -> None:
    """The limit is 5%. A row with several seeds is judged by their mean. The note names the rows."""
    rows = [trained_row("base", 7.0, last_fall=0.049), trained_row("A1", 7.0, last_fall=0.051)]
    two = trained_row("C1", 7.0).trainings + trained_row("C2", 7.0, last_fall=0.12).trainings
    table, _ = table3.compute([*rows, RowTrainings("C1", {}, two)])
    rows_made = table.tables[0].rows
    assert [row.values["last_fall"] for row in rows_made] == pytest.approx([0.049, 0.051, 0.06])
    assert [row.values["has_converged"] for row in rows_made] == [True, False, False]
    assert [str(row.values["change"]).endswith("not converged") for row in rows_made] == [False, True, True]
    (note,) = (note for note in table.notes if note.startswith("Not converged"))
    assert note.startswith("Not converged (A1, C1): dev perplexity still fell by more than 5%")
    assert not any("onverged" in note for note in table3.compute([trained_row("A2", 7.0)])[0].notes)
