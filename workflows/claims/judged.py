"""A claim's verdict, and the noise that it was held against.

difference = Difference.over([0.31, 0.42, 0.28])        # one for each seed
Judged(difference.verdict(), f"{difference.text()} BLEU", seeds=difference.n)
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Verdict = Literal["holds", "within noise", "fails", "not measurable here", "not run"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Judged:
    """What came out for a claim."""

    verdict: Verdict
    here: str
    """The figures that the verdict rests on, in words."""
    paper: str = ""
    """What the paper's printed figures say of it, if they do."""
    seeds: int | None = None
    """The trainings of each kind that were compared; None where it was counted or timed."""


def verdict(holds: bool) -> Verdict:
    """Returns the verdict on what has no noise."""
    return "holds" if holds else "fails"


@dataclass(frozen=True)
class Difference:
    """The mean of a difference over seeds, with its confidence interval by Student's distribution."""

    mean: float
    half: float
    """Half of the interval at 95 % confidence."""
    n: int

    @classmethod
    def over(cls, values: Sequence[float]) -> "Difference":
        """Summarizes one difference for each seed. Raises ValueError for fewer than two, which have no noise."""
        if len(values) < 2:
            raise ValueError(f"{len(values)} seeds do not tell how large noise is; give at least two")
        from scipy.stats import t  # imports slowly, and a finished table does not need it

        quantile = float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1))
        return cls(statistics.fmean(values), quantile * statistics.stdev(values) / len(values) ** 0.5, len(values))

    def verdict(self) -> Verdict:
        """Tells whether the difference is positive, as claimed, beyond noise."""
        if abs(self.mean) <= self.half:
            return "within noise"
        return verdict(self.mean > 0)

    def at_most(self, limit: float) -> Verdict:
        """Tells whether the difference is no larger than `limit`, as claimed: wherever in its interval it may lie."""
        if self.mean - self.half > limit:
            return "fails"
        return "holds" if self.mean + self.half <= limit else "within noise"

    def within(self, limit: float) -> Verdict:
        """Tells whether what is said to be alike differs by at most `limit`: wherever in its interval it may lie."""
        if abs(self.mean) - self.half > limit:
            return "fails"
        return "holds" if abs(self.mean) + self.half <= limit else "within noise"

    def text(self, decimals: int = 2) -> str:
        """Formats it as `+0.34 ± 0.12`."""
        return f"{self.mean:+.{decimals}f} ± {self.half:.{decimals}f}"
