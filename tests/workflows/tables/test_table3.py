"""Table 3 from artifacts: figures over seeds, differences from base, and the paper's claims."""

import math
from collections.abc import Callable, Sequence

import pytest

from tests.support.unspaced_text import CHINESE
from workflows.tables import table3
from workflows.tables.table3 import RowTrainings, Table3, Table3Row

TrainedRow = Callable[..., RowTrainings]


def by_name(table: Table3) -> dict[str, Table3Row]:
    """Returns the table's rows by name."""
    return {line.name: line for line in table.rows}


def bleu_of(inputs: RowTrainings) -> list[float]:
    """Reads paper BLEU on the dev set from the files of a row's trainings."""
    scores = []
    for training in inputs.trainings:
        assert training.scores is not None
        scores.append(training.scores.load().paper_bleu)
    return scores


def test_seeds_give_mean_and_sample_deviation(trained_row: TrainedRow) -> None:
    """Perplexities 5, 6 and 8 have mean 19/3 and deviation √(14/6); time and operations are totals over the three."""
    inputs = trained_row("A1", 5.0, 6.0, 8.0, errors=(0, 1, 2))
    trained = table3.compute([inputs])[0].rows[0].trained
    assert trained is not None
    assert trained.perplexity.mean == pytest.approx(19 / 3)
    assert trained.perplexity.deviation == pytest.approx(math.sqrt(14 / 6))
    first, second, third = bleu_of(inputs)
    assert first == pytest.approx(100)
    assert trained.bleu.mean == pytest.approx((first + second + third) / 3)
    assert (trained.seeds, trained.train_s, trained.counted_flop) == ((1, 2, 3), 300.0, 3 * 3.1e12)


def test_where_paper_bleu_is_not_defined_differences_are_of_sacre_bleu(trained_row: TrainedRow) -> None:
    """The column of paper BLEU says so, and a note beneath the table says what Δ is of."""
    chinese = {"references": CHINESE[:3], "pair": "en-zh"}
    base = trained_row("base", 7.0, translated=CHINESE[:3], **chinese)
    other = trained_row("B1", 8.0, translated=[*CHINESE[:2], CHINESE[3]], **chinese)
    table = table3.compute([base, other])[0]
    row = by_name(table)["B1"]
    assert row.trained is not None
    assert row.texts_of("bleu")[2] == "not defined"
    assert row.trained.from_base is not None
    assert row.trained.from_base["bleu"] == pytest.approx(row.trained.sacrebleu.mean - 100) != 0
    assert any("EN-ZH: paper BLEU is not defined" in note for note in table.notes)
    assert table.figures()["sacreBLEU dev base"] == pytest.approx(100)


def test_differences_from_base_stay_in_their_column(trained_row: TrainedRow) -> None:
    """A printed row is compared with the printed base, and a measured mean with the mean of the measured base."""
    base, other = trained_row("base", 7.0, 7.5, errors=(1, 2)), trained_row("B1", 8.0, errors=(0,))
    row = by_name(table3.compute([base, other])[0])["B1"]
    assert row.printed is not None
    assert row.trained is not None
    assert row.trained.from_base is not None
    assert row.printed.from_base == {"perplexity": 0.24, "bleu": -0.7}  # 5.16 - 4.92, 25.1 - 25.8
    assert row.trained.from_base["perplexity"] == pytest.approx(0.75)
    assert row.trained.from_base["bleu"] == pytest.approx(100 - sum(bleu_of(base)) / 2)


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
    """Tied rows share the mean of their ranks; the expected values are worked out by hand."""
    names = ("base", "C1", "C2", "E")
    table, _ = table3.compute([trained_row(*figures) for figures in zip(names, perplexities, strict=True)])
    (correlation,) = table.correlations  # BLEU is the same in all rows, so their order cannot be compared
    assert (correlation.kind, correlation.rows) == ("perplexity", 4)
    assert correlation.spearman == pytest.approx(spearman)
