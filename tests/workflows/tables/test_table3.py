import math
import statistics
from collections.abc import Callable, Sequence

import pytest

from tests.support.unspaced_text import CHINESE
from workflows.tables import table3
from workflows.tables.table import Results, Row
from workflows.tables.table3 import COLUMNS, RowTrainings, last_fall

TrainedRow = Callable[..., RowTrainings]


def by_name(results: Results) -> dict[str, Row]:
    return {row.name: row for row in results.tables[0].rows}


def test_seeds_give_mean_and_sample_deviation(trained_row: TrainedRow) -> None:
    results = table3.compute([trained_row("A1", 5.0, 6.0, 8.0), trained_row("B1", 50.0)])[0]
    row = by_name(results)["A1"]
    assert row.values["perplexity"] == pytest.approx(19 / 3)
    assert row.values["perplexity.deviation"] == pytest.approx(math.sqrt(14 / 6))
    assert [column.text(row) for column in COLUMNS if column.key == "perplexity"] == ["6.33±1.5"]
    deviation = statistics.stdev(map(math.log, (5, 6, 8)))
    assert any(f"are {deviation:.4f} to {deviation:.4f} nats" in note for note in results.notes)


def test_where_paper_bleu_is_not_defined_differences_are_of_sacre_bleu(trained_row: TrainedRow) -> None:
    chinese = {"references": CHINESE[:3], "pair": "en-zh"}
    base = trained_row("base", 7.0, translated=CHINESE[:3], **chinese)
    table = table3.compute([base, trained_row("B1", 8.0, translated=[*CHINESE[:2], CHINESE[3]], **chinese)])[0]
    row = by_name(table)["B1"]
    assert row.values["paper_bleu"] == "not defined"
    assert row.values["bleu.delta"] == pytest.approx(row.values["sacrebleu"] - 100) != 0
    assert any("EN-ZH: Moses BLEU is not defined" in note for note in table.notes)
    assert table.metrics["sacrebleu.dev base"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("perplexities", "spearman"),
    [
        # Printed: base 4.92, C1 6.11, C2 5.19, E 4.92: ranks 1.5, 4, 3, 1.5.
        ((5.0, 8.0, 7.0, 5.0), 1.0),
        ((5.0, 8.0, 7.0, 6.0), 4.5 / math.sqrt(4.5 * 5)),  # ranks 1, 4, 3, 2: squares about the mean add to 4.5 and 5
        ((8.0, 5.0, 7.0, 7.0), -3.75 / 4.5),  # ranks 4, 1, 2.5, 2.5
    ],
)
def test_rank_correlation_with_ties(trained_row: TrainedRow, perplexities: Sequence[float], spearman: float) -> None:
    """Tied rows share the mean of their ranks. Expected values are computed by hand."""
    names = ("base", "C1", "C2", "E")
    table, _ = table3.compute([trained_row(*figures) for figures in zip(names, perplexities, strict=True)])
    correlations = {name: figure for name, figure in table.metrics.items() if "correlation" in name}
    # BLEU is the same in all rows, so their order cannot be compared
    assert correlations == {"rank correlation by perplexity": pytest.approx(spearman)}
    assert f"{spearman:.2f} for perplexity (4 rows)." in table.tables[0].explanation


def curve(*points: tuple[int, float]) -> list[dict[str, float]]:
    return [{"update": update, name: value} for update, value in points for name in ("loss", "dev_perplexity")]


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
