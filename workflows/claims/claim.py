"""A claim of the paper, its judge and the outcome.

    Claim("6.2", "reducing the attention key size d_k hurts", "Table 3", needs=("table3",), judge=...)

A judge takes the evidence that its claim needs and returns a `Finding`. The claims of one family are judged together:
the p-values of their tests are corrected by Holm's method (`judged`).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from workflows.claims.inference import Decided, Estimate, decided, every, holm, two_sided

Verdict = Literal["holds", "fails", "undecided", "needs real text", "needs WMT14", "needs WSJ", "not run"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Data = Literal["", "real text", "WMT14", "WSJ"]
"""The data that can judge a claim: "" is any text, including generated text. Printed values are on WMT14 and WSJ."""
Kind = Literal["timing", "trained", "printed", "control"]
KINDS: Mapping[Kind, str] = {
    "timing": "Timings on this machine",
    "trained": "Claims that need trained models",
    "printed": "Comparisons of printed values",
    "control": "Negative controls",
}
"""The tallies, which are never added up: a timing holds for one machine, a printed value for no model of ours."""


@dataclass(frozen=True)
class Effect:
    """A quantity with its 95% interval, in the direction of the claim: a row of a forest plot."""

    text: str
    """The comparison, e.g. `A1 behind the best`."""
    unit: str
    """`nats` (per target token), `BLEU`, `accuracy`, or `×` for ratios."""
    value: float
    n: int
    """The number of runs on the smaller side, or of rounds of a timing."""
    low: float | None = None
    """None without repeated measurements, and thus without an interval."""
    high: float | None = None
    above: float | None = None
    """The claim holds for effects above `above` and below `below`; None: no such limit."""
    below: float | None = None
    printed: float | None = None
    """The paper's effect, in the same unit."""

    @classmethod
    def of(cls, text: str, unit: str, tested: Estimate, printed: float | None = None) -> "Effect":
        """Returns the tested effect; without an interval if a row has a single run."""
        interval = (tested.low, tested.high) if tested.n > 1 else (-math.inf, math.inf)
        low, high, above, below = (
            None if math.isinf(limit) else limit for limit in (*interval, tested.region.low, tested.region.high)
        )
        return cls(text, unit, tested.value, tested.n, low, high, above, below, printed)


@dataclass(frozen=True)
class Finding:
    """The result of a judge."""

    p_holds: float
    """One-sided p-values, like in `Estimate`: against the claim's negation, and against the claim."""
    p_fails: float
    effects: tuple[Effect, ...] = ()
    """The primary one first."""
    here: str = ""
    """Further evidence for the verdict, in words."""

    @classmethod
    def of(cls, tested: Sequence[Estimate], effects: Iterable[Effect], here: str = "") -> "Finding":
        """Returns the finding that all of these hold, or that one fails. A single run (n = 1) decides nothing."""
        p_values = every(tested) if all(each.n > 1 for each in tested) else (1.0, 1.0)
        return cls(*p_values, tuple(effects), here)

    @classmethod
    def all_of(cls, unit: str, tested: Mapping[str, Estimate], here: str = "") -> "Finding":
        """Returns the finding that all of these effects hold, or that one fails; the keys are their texts."""
        return cls.of([*tested.values()], (Effect.of(text, unit, each) for text, each in tested.items()), here)

    @classmethod
    def certain(cls, holds: bool, here: str) -> "Finding":
        """Returns the finding on counts without noise. Its p is 0, so Holm's method corrects no other claim for it."""
        return cls(float(not holds), float(holds), (), here)

    @property
    def p(self) -> float:
        """The smallest significance level with a verdict."""
        return two_sided(self.p_holds, self.p_fails)

    def verdict(self, p: float) -> Decided:
        """Returns the verdict at p-value `p`, corrected for a family or not."""
        return decided(self.p_holds, self.p_fails, p)


@dataclass(frozen=True)
class Printed:
    """The verdict of the paper's printed values on a claim."""

    verdict: Decided
    text: str


@dataclass(frozen=True)
class Claim:
    """A claim of the paper."""

    section: str
    """The paper's section, e.g. "3.2.1", or figure."""
    text: str
    """In the paper's words, shortened."""
    family: str
    """Claims tested on the same runs share a family and are corrected together."""
    needs: tuple[str, ...] = ()
    """The names of the judge's evidence, in its argument order."""
    judge: Callable[..., Finding | None] | None = None
    """Returns None if its evidence is incomplete, e.g. lacks a row. It is None if nothing here can judge the claim."""
    kind: Kind = "trained"
    data: Data = ""
    lacks: str = ""
    """The missing evidence: a command, or an experiment not built yet."""
    printed: Printed | None = None


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict."""

    section: str
    text: str
    family: str
    kind: Kind
    verdict: Verdict
    p: float | None = None
    """Corrected for the other claims of its family."""
    effects: tuple[Effect, ...] = ()
    here: str = ""
    printed: Printed | None = None
    lacks: str = ""
    """The missing evidence, like in `Claim`."""

    @property
    def place(self) -> str:
        """The paper's section or figure."""
        return f"§{self.section}" if self.section[0].isdigit() else self.section


@dataclass(frozen=True)
class Evidence:
    """The available evidence and the kinds of data behind it."""

    found: Mapping[str, Any] = field(default_factory=dict)
    data: tuple[Data, ...] = ()
    """The kinds of data; empty for generated text."""


NEEDS: Mapping[Data, Verdict] = {"real text": "needs real text", "WMT14": "needs WMT14", "WSJ": "needs WSJ"}


def judged(claims: Sequence[Claim], evidence: Evidence) -> list[Judged]:
    """Judges claims in order, with p-values corrected within each family."""
    outcomes = [_outcome(claim, evidence) for claim in claims]
    families: dict[str, dict[int, float]] = {}
    for index, (claim, outcome) in enumerate(zip(claims, outcomes, strict=True)):
        if isinstance(outcome, Finding):
            families.setdefault(claim.family, {})[index] = outcome.p
    corrected: dict[int, float] = {}
    for p_values in families.values():
        corrected |= zip(p_values, holm([*p_values.values()]), strict=True)
    return [_judged(claim, outcomes[index], corrected.get(index, 1.0)) for index, claim in enumerate(claims)]


def _outcome(claim: Claim, evidence: Evidence) -> Finding | Verdict:
    """Returns the judge's finding, or the reason why there is none."""
    if claim.data and claim.data not in evidence.data:
        return NEEDS[claim.data]
    if claim.judge is None or not set(claim.needs) <= evidence.found.keys():
        return "not run"
    return claim.judge(*(evidence.found[name] for name in claim.needs)) or "not run"


def _judged(claim: Claim, outcome: Finding | Verdict, p: float) -> Judged:
    about = claim.section, claim.text, claim.family, claim.kind
    if not isinstance(outcome, Finding):
        return Judged(*about, outcome, printed=claim.printed, lacks=claim.lacks)
    return Judged(*about, outcome.verdict(p), p, outcome.effects, outcome.here, claim.printed)
