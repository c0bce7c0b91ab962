"""Judged claims as a table, and the tallies of their verdicts."""

from collections import Counter
from collections.abc import Sequence

from workflows.claims.claim import KINDS, VERDICTS, Effect, Judged, Verdict
from workflows.tables.table import NAME, Column, Table, columns, in_order

TITLE = "The paper's claims"
PLURAL = {
    "holds": "hold",
    "fails": "fail",
    "needs real text": "need real text",
    "needs WMT14": "need WMT14",
    "needs WSJ": "need WSJ",
}
DECIMALS = {"nats": 3, "accuracy": 3, "share": 2, "BLEU": 2, "F1": 1, "×": 2}
"""Number formats of effects, by unit."""


def claims_table(claims: Sequence[Judged], *, on_terminal: bool = False) -> Table:
    """Returns one row per claim: each effect on its own line with its interval, beside the paper's effect."""
    shown = [
        Column(NAME, "where"),
        *columns("claim", "effect here [95%]"),
        *(Column(heading, heading, on_terminal=False) for heading in ("in the paper", "n", "p")),
        *columns("verdict"),
    ]
    rows = []
    for claim in claims:
        here = [*map(effect_text, claim.effects), *filter(None, [claim.here])]
        printed = [
            f"{_number(effect.printed, effect.unit)} {effect.unit}"
            for effect in claim.effects
            if effect.printed is not None
        ]
        if claim.printed:
            printed = [f"{claim.printed.verdict}: {claim.printed.text}"]
        if claim.lacks:
            here.append(f"to judge it: {claim.lacks}")
        seeds = str(claim.effects[0].n) if claim.effects else ""
        p = "" if claim.p is None or not claim.effects else f"{claim.p:.3f}"
        values = claim.text, "\n".join(here), "\n".join(printed), seeds, p, claim.verdict
        rows.append(in_order(shown, claim.place, *values, group=claim.section))
    explanation = (
        "A claim holds if the 95% confidence interval of its effect lies wholly in the claimed region, fails if it "
        "lies wholly outside, and is undecided otherwise. n is the number of runs, or of rounds of a timing; a single "
        "run decides nothing. p is corrected for the claims of the family (Holm): above 0.05 the claim is undecided, "
        "whatever its interval. The rules are in docs/protocol.md."
    )
    return Table(TITLE, shown, rows, explanation, on_terminal=on_terminal)


def effect_text(effect: Effect) -> str:
    """Writes an effect with its interval: `A1 behind the best: +0.034 [+0.012, +0.056] nats`."""
    interval = ""
    if effect.low is not None and effect.high is not None:
        interval = f" [{_number(effect.low, effect.unit)}, {_number(effect.high, effect.unit)}]"
    return f"{effect.text}: {_number(effect.value, effect.unit)}{interval} {effect.unit}"


def _number(value: float, unit: str) -> str:
    sign = "" if unit == "×" else "+"
    return f"{value:{sign}z.{DECIMALS[unit]}f}"


def verdicts(claims: Sequence[Judged], kind: str) -> Counter[Verdict]:
    """Counts the verdicts of claims of one kind; for printed values, the verdicts on the paper's values."""
    of_kind = [claim for claim in claims if claim.kind == kind]
    if kind == "printed":
        return Counter(claim.printed.verdict for claim in of_kind if claim.printed)
    return Counter(claim.verdict for claim in of_kind)


def tallies(claims: Sequence[Judged]) -> list[str]:
    """Counts the verdicts of each kind of claim in a sentence; the kinds are never added up."""
    sentences = []
    for kind, name in KINDS.items():
        counted = verdicts(claims, kind)
        if counted:
            listed = [f"{n} {each if n == 1 else PLURAL.get(each, each)}" for each in VERDICTS if (n := counted[each])]
            sentences.append(f"{name}: {', '.join(listed)}.")
    return sentences
