"""The paper's claims about the order of rows, held against figures with and without the noise between seeds."""

import math
from collections.abc import Callable

import pytest

from workflows import paper
from workflows.paper import KINDS, Kind
from workflows.tables import table3
from workflows.tables.orderings import Noise, OrderingOutcome, Standing, Verdict, outcomes
from workflows.tables.table import Results
from workflows.tables.table3 import RowTrainings

TrainedRow = Callable[..., RowTrainings]
NOISE = Noise(3, {"perplexity": 0.01, "bleu": 0.5})

PRINTED = {
    name: Standing({"perplexity": float(variation.perplexity), "bleu": float(variation.bleu)})
    for name, variation in paper.VARIATIONS.items()
}


def judged(claim: str, noise: Noise | None, **rows: tuple[float, float]) -> OrderingOutcome:
    """Judges the claim that begins so by perplexity and BLEU of some rows: base with 3 seeds, others with 1."""
    measured = {
        name: Standing({"perplexity": perplexity, "bleu": bleu}, 3 if name == "base" else 1)
        for name, (perplexity, bleu) in rows.items()
    }
    return next(outcome for outcome in outcomes(measured, PRINTED, noise) if outcome.said.startswith(claim))


def answers(results: Results, kind: Kind) -> dict[str, object]:
    """Returns what the table beneath Table 3 says of each claim by what was measured."""
    return {row.name: row.values[f"{kind}.here"] for row in results.tables[1].rows}


def test_noise_is_the_sample_deviation_over_seeds() -> None:
    """Of log perplexity (ratios 1, e, e² have deviation 1) and of BLEU (20, 21, 24: √(13/3)); one training has none."""
    figures: list[dict[Kind, float]] = [
        {"perplexity": 5 * math.exp(number), "bleu": bleu} for number, bleu in enumerate((20.0, 21.0, 24.0))
    ]
    noise = Noise.between(figures)
    assert noise is not None
    assert noise.seeds == 3
    assert noise.deviations == pytest.approx({"perplexity": 1.0, "bleu": math.sqrt(13 / 3)})
    assert noise.limit("bleu", 1, 3) == pytest.approx(2 * math.sqrt(13 / 3) * math.sqrt(4 / 3))
    assert Noise.between(figures[:1]) is None
    assert Noise.between([]) is None


@pytest.mark.parametrize(
    ("a1", "verdicts"),
    [
        ((10.0 * 1.024, 30.0 - 1.16), ("yes", "yes")),
        ((10.0 * 1.023, 30.0 - 1.15), ("within noise", "within noise")),
        ((10.0, 30.0), ("within noise", "within noise")),
        ((10.0 / 1.023, 30.0 + 1.15), ("within noise", "within noise")),
        ((10.0 / 1.024, 30.0 + 1.16), ("no", "no")),
    ],
)
def test_a_step_counts_beyond_the_noise_alone(a1: tuple[float, float], verdicts: tuple[Verdict, Verdict]) -> None:
    """Just above the limit a claim holds or fails; just beneath it, in either direction, neither."""
    outcome = judged("one head", NOISE, A1=a1, base=(10.0, 30.0))
    assert tuple(outcome.verdict[kind] for kind in KINDS) == verdicts
    assert outcome.measured == {"perplexity": a1[0] > 10, "bleu": a1[1] < 30}


@pytest.mark.parametrize(
    ("bleus", "verdict", "in_order"),
    [
        ((20.0, 24.0, 28.0, 32.0), "yes", True),
        ((20.0, 24.0, 28.0, 28.5), "within noise", True),
        ((20.0, 24.0, 28.0, 27.5), "within noise", False),
        ((20.0, 24.0, 28.0, 26.0), "no", False),
        ((20.0, 20.1, 28.0, 26.0), "no", False),
    ],
)
def test_a_chain_is_as_good_as_its_worst_step(
    bleus: tuple[float, float, float, float], verdict: Verdict, in_order: bool
) -> None:
    """A step against the claim beyond the noise refutes it; a step within the noise leaves it open."""
    rows = {name: (10.0, bleu) for name, bleu in zip(("C1", "C2", "base", "C3"), bleus, strict=True)}
    outcome = judged("more layers", NOISE, **rows)
    assert outcome.verdict["bleu"] == verdict
    assert outcome.measured["bleu"] is in_order


def test_without_noise_there_is_no_verdict() -> None:
    """Whether the figures as they stand are in order is told all the same; equality cannot be."""
    outcome = judged("one head", None, A1=(12.0, 31.0), base=(10.0, 30.0))
    assert outcome.measured == {"perplexity": True, "bleu": False}
    assert outcome.verdict == {"perplexity": None, "bleu": None}
    learned = judged("learned positions", None, E=(10.1, 30.0), base=(10.0, 30.0))
    assert learned.measured == {"perplexity": None, "bleu": True}  # equal to the last digit, so by any noise
    assert learned.verdict == {"perplexity": None, "bleu": None}
    assert [outcome.answer(kind, "here") for kind in KINDS] == ["yes?", "no?"]
    assert [learned.answer(kind, "here") for kind in KINDS] == ["unknown", "yes?"]


def test_equal_rows_are_those_within_noise() -> None:
    """Learned positions are as good as sinusoids where the two differ by no more than noise, in either direction."""
    near = judged("learned positions", NOISE, E=(10.2, 29.0), base=(10.0, 30.0))
    assert near.verdict == {"perplexity": "yes", "bleu": "yes"}
    far = judged("learned positions", NOISE, E=(9.7, 28.8), base=(10.0, 30.0))
    assert far.verdict == {"perplexity": "no", "bleu": "no"}


def test_label_smoothing_is_to_hurt_perplexity_and_improve_bleu() -> None:
    """D3 has none: it is claimed to have the better perplexity and the worse BLEU, as it does in print."""
    outcome = judged("label smoothing", NOISE, D3=(9.0, 28.0), base=(10.0, 30.0))
    assert outcome.printed == {"perplexity": True, "bleu": True}
    assert outcome.verdict == {"perplexity": "yes", "bleu": "yes"}
    opposite = judged("label smoothing", NOISE, D3=(11.0, 32.0), base=(10.0, 30.0))
    assert opposite.verdict == {"perplexity": "no", "bleu": "no"}
    assert opposite.measured == {"perplexity": False, "bleu": False}


def test_the_best_is_better_than_every_row_measured() -> None:
    """That big beats base is not enough: C7 is better by BLEU; and the outcome names the rows compared."""
    rows = {"base": (10.0, 30.0), "A1": (11.0, 28.0), "C7": (9.5, 36.0), "big": (9.0, 34.0)}
    outcome = judged("the big model", NOISE, **rows)
    assert outcome.rows == ("base", "A1", "C7", "big")
    assert outcome.printed == {"perplexity": True, "bleu": True}
    assert outcome.measured == {"perplexity": True, "bleu": False}
    assert outcome.verdict == {"perplexity": "yes", "bleu": "no"}
    alone = judged("the big model", NOISE, big=(9.0, 34.0))
    assert alone.measured == alone.verdict == {"perplexity": None, "bleu": None}


def test_the_paper_s_claims_hold_for_its_printed_perplexities() -> None:
    """So does each for its printed BLEU, but for C3 (25.5, base 25.8) and E (25.7), where only noise could tell."""
    by_claim = {outcome.said: outcome.printed for outcome in outcomes(PRINTED, PRINTED, None)}
    assert len(by_claim) == len(paper.ORDERINGS)
    assert all(printed["perplexity"] for printed in by_claim.values())
    doubtful = {said: printed["bleu"] for said, printed in by_claim.items() if not printed["bleu"]}
    assert doubtful == {"more layers are better": False, "learned positions are as good as sinusoids": None}


def test_noise_and_verdicts_come_from_the_files(trained_row: TrainedRow) -> None:
    """Three seeds of base with ratios of 1.01 have s = log 1.01; a row 5 % worse is beyond it, one 1 % worse is not."""
    base = trained_row("base", 7.0 / 1.01, 7.0, 7.0 * 1.01)
    rows = [base, trained_row("A1", 7.35), trained_row("A4", 7.07), trained_row("F1", 1.0)]
    table, _ = table3.compute(rows)
    (noise,) = (note for note in table.notes if note.startswith("Noise: 3 trainings of base"))
    assert "a standard deviation s of 1.0 % in perplexity" in noise
    of_heads = {"one head is worse than eight": "yes", "too many heads are worse, too": "within noise"}
    assert answers(table, "perplexity") == of_heads
    rows_made = table.tables[0].rows
    assert [row.values["perplexity.is_beyond_noise"] for row in rows_made] == [False, True, False, True]
    single, _ = table3.compute([RowTrainings("base", {}, base.trainings[:1]), *rows[1:]])
    assert answers(single, "perplexity") == dict.fromkeys(of_heads, "yes?")
    assert not any("perplexity.is_beyond_noise" in row.values for row in single.tables[0].rows)
