"""Table 3 from artifacts: figures over seeds, differences from base, and the paper's claims."""

import math
import re
from collections.abc import Callable, Sequence

import pytest

from model.config import TransformerConfig
from workflows.tables import table3
from workflows.tables.table3 import Figure, RowTrainings, Table3, Table3Row

TrainedRow = Callable[..., RowTrainings]


def by_name(table: Table3) -> dict[str, Table3Row]:
    """Returns the table's rows by name."""
    return {line.name: line for line in table.rows}


def bleu_of(inputs: RowTrainings) -> list[float]:
    """Reads paper BLEU on the dev set from the files of a row's trainings."""
    scores = []
    for training in inputs.trainings:
        assert training.scores is not None
        scores.append(training.scores.load().test_sets["dev"].paper_bleu)
    return scores


def test_figures_are_those_of_the_files(trained_row: TrainedRow) -> None:
    """With one seed there is no deviation; parameters, seed and time are those of run.json."""
    inputs = trained_row("base", 5.25, parameters=1_234_567, train_s=61.5)
    trained = table3.compute([inputs])[0].rows[0].trained
    assert trained is not None
    assert trained.perplexity == Figure(5.25)
    assert trained.bleu == Figure(*bleu_of(inputs))
    assert 0 < trained.bleu.mean != trained.sacrebleu.mean > 0
    assert (trained.parameters, trained.updates, trained.seeds, trained.train_s) == (1_234_567, 400, (1,), 61.5)
    assert trained.counted_flop == 3.1e12


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


def test_without_a_measured_base_there_are_no_measured_differences(trained_row: TrainedRow) -> None:
    """The printed differences are there; a note says why the measured ones are not."""
    table, _ = table3.compute([RowTrainings("base", {}, (), "out of memory"), trained_row("B1", 8.0)])
    row = by_name(table)["B1"]
    assert row.printed is not None
    assert row.trained is not None
    assert row.trained.from_base is None
    assert row.printed.from_base["bleu"] == -0.7
    assert any(note.startswith("Base was not measured") for note in table.notes)


def test_rows_without_figures_keep_their_state(trained_row: TrainedRow) -> None:
    """Rows that were not run or failed say so, and the notes beneath give the reasons."""
    table, measured = table3.compute(
        [
            trained_row("base", 7.0),
            RowTrainings("A1", {"n_heads": 1}, ()),
            RowTrainings("A2", {"n_heads": 4}, ()),
            RowTrainings("C3", {"n_layers": 6}, (), "out of memory"),
        ]
    )
    assert [line.state for line in table.rows] == ["measured", "not run", "not run", "failed"]
    assert [line.trained is None for line in table.rows] == [False, True, True, True]
    assert table.notes[-1] == "C3 failed: out of memory"
    assert list(measured) == ["base"]
    bleu = measured["base"][0].main_bleu.paper_bleu
    assert table.figures() == {"dev perplexity base": 7.0, "paper BLEU dev base": bleu, "rows measured": 1}


def test_a_row_of_one_s_own_has_nothing_printed(trained_row: TrainedRow) -> None:
    """The row has a difference from base and takes no part in the correlation."""
    lines = [trained_row(name, value) for name, value in (("base", 7.0), ("A1", 8.0), ("A2", 9.0))]
    own = RowTrainings("F1", {"n_layers": 1, "warmup_steps": 9}, trained_row("F1", 6.5).trainings)
    table, _ = table3.compute([*lines, own])
    row = table.rows[-1]
    assert (row.printed, row.change, row.state) == (None, "N 1, warmup_steps 9", "measured")
    assert row.trained is not None
    assert row.trained.from_base is not None
    assert row.trained.from_base["perplexity"] == pytest.approx(-0.5)
    assert {correlation.rows for correlation in table.correlations} == {3}


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


def test_two_rows_have_no_rank_correlation(trained_row: TrainedRow) -> None:
    """Two rows are always either in order or in reverse."""
    assert table3.compute([trained_row("base", 7.0), trained_row("A1", 8.0)])[0].correlations == []


def test_differences_without_base_are_those_of_the_first_row(trained_row: TrainedRow) -> None:
    """The paper's big row has 300,000 updates and another dropout."""
    config = TransformerConfig(vocabulary_size=800, n_layers=2, n_heads=16, dropout=0.3)
    table, _ = table3.compute([trained_row("big", 7.0, config=config)])
    by_aspect = {difference.what: difference for difference in table.differences}
    assert by_aspect["updates"].paper == "300,000"
    assert by_aspect["model"].paper == "N 6, d_model 1024, d_ff 4096"
    assert by_aspect["model"].cells == ("EN-DE big",)


def test_notes_tell_the_ratios_of_base_s_sizes(trained_row: TrainedRow) -> None:
    """The notes give each size with its ratio to that of the paper's base, equal sizes included."""
    small = TransformerConfig(
        vocabulary_size=800, n_layers=3, d_model=128, d_ff=512, n_heads=8, d_k=16, d_v=16, dropout=0.05
    )
    notes = " ".join(table3.compute([trained_row("base", 7.0, config=small)])[0].notes)
    sizes = "N 3 (× 0.5), d_model 128 (× 0.25), d_ff 512 (× 0.25), h 8 (× 1), d_k 16 (× 0.25), d_v 16 (× 0.25)"
    assert f"{sizes}, P_drop 0.05 (× 0.5)" in notes


def test_notes_tell_how_many_seeds(trained_row: TrainedRow) -> None:
    """Rows have one seed, several, or different numbers; a seed that failed is noted although the row has figures."""
    two = trained_row("A1", 8.0, 9.0)
    part = RowTrainings("A2", {}, trained_row("A2", 8.0).trainings, reason="A2 seed 2: out of memory")
    single = " ".join(table3.compute([trained_row("base", 7.0)])[0].notes)
    assert "Each measured row is one training with one seed" in single
    assert "differ from seed to seed was not measured" in single
    assert not re.search(r"±\d", single)
    assert any("the mean of 2 seeds ±" in note for note in table3.compute([two])[0].notes)
    notes = table3.compute([two, part])[0].notes
    assert any("the mean of 1 to 2 seeds ±" in note for note in notes)
    assert notes[-1] == "A2 is incomplete: A2 seed 2: out of memory"


def test_a_row_s_texts(trained_row: TrainedRow) -> None:
    """Both changes, figures as printed and as measured with a deviation of few digits, and costs of one training."""
    rows = [
        trained_row("base", 7.004, 7.4, errors=(0, 6)),
        trained_row("E", 7.2, last_fall=0.2, train_s=700.0),
        RowTrainings("C3", {"n_layers": 6}, (), "out of memory"),
    ]
    base, learned, failed = (line.texts for line in table3.compute(rows)[0].shown()[0].lines)
    assert base[3:7] == ["4.92", "", "7.20±0.28", ""]
    assert re.fullmatch(r"\d\d\.\d\d±\d\d", base[9])
    changes = ["positions learned\nnot converged", "positions learned"]
    assert learned[:7] == ["E", *changes, "4.92", "+0.00", "7.20", "+0.00"]  # without a minus sign
    assert learned[12:] == ["", "1.4", "11 min 40 s", "3.1e12"]
    assert failed[3:] == ["4.88", "-0.04", "failed", "", "25.5", "-0.3", "failed", "", "failed", "80", *["failed"] * 3]
