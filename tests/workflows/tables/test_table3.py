import math
import statistics
from collections.abc import Callable, Sequence

import pytest

from tests.support.unspaced_text import CHINESE
from workflows.tables import table3
from workflows.tables.table import Results, Row
from workflows.tables.table3 import COLUMNS, RowTrainings

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
    assert any(f"{deviation:.4f} nats" in note and "(2 degrees" in note for note in results.notes)


def test_where_paper_bleu_is_not_defined_differences_are_of_sacre_bleu(trained_row: TrainedRow) -> None:
    chinese = {"references": CHINESE[:3], "pair": "en-zh"}
    base = trained_row("base", 7.0, translated=CHINESE[:3], **chinese)
    other = trained_row("B1", 8.0, translated=[*CHINESE[:2], CHINESE[3]], **chinese)
    table = table3.compute([base, other])[0]
    row = by_name(table)["B1"]
    assert row.values["bleu"] == "not defined"
    assert row.values["bleu.delta"] == pytest.approx(row.values["sacrebleu"] - 100) != 0
    assert any("EN-ZH: paper BLEU is not defined" in note for note in table.notes)
    assert table.metrics["sacreBLEU dev base"] == pytest.approx(100)


def test_differences_from_base_stay_in_their_column(trained_row: TrainedRow) -> None:
    row = by_name(table3.compute([trained_row("base", 7.0, 7.5), trained_row("B1", 8.0)])[0])["B1"]
    printed = {key: row.values[f"{key}.paper_delta"] for key in ("perplexity", "bleu")}
    assert printed == {"perplexity": 0.24, "bleu": -0.7}  # 5.16 - 4.92, 25.1 - 25.8
    assert row.values["perplexity.delta"] == pytest.approx(0.75)


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
