"""A weighted sum of rows' means with its uncertainty over seeds, by Welch: for verdicts, and for Table 3's plot.

welch([(1, [4.70, 4.68, 4.71]), (-1, [4.61, 4.63, 4.60])]).margin(ALPHA / 2)       # half a 95% confidence interval
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

ALPHA = 0.05
"""The probability of a wrong verdict: for both bounds of an interval together, or for a family after `holm`."""


@dataclass(frozen=True)
class Effect:
    """An estimate with Student's distribution around the true effect; df is 0 if its standard error is unknown."""

    value: float
    error: float
    df: float

    def p_above(self, limit: float) -> float:
        """Returns the p-value of the hypothesis effect <= limit."""
        if self.df == 0:
            return float(limit > -math.inf)
        if self.error == 0:
            return float(self.value <= limit)
        from scipy.special import stdtr

        return float(stdtr(self.df, (limit - self.value) / self.error))

    def p_below(self, limit: float) -> float:
        """Returns the p-value of the hypothesis effect >= limit."""
        return Effect(-self.value, self.error, self.df).p_above(-limit)

    def margin(self, tail: float) -> float:
        """Returns the one-sided margin of error: the true effect lies beyond it with probability `tail`."""
        from scipy.special import stdtrit

        if self.df == 0 or self.error == 0:
            return 0.0 if self.df else math.inf
        return float(stdtrit(self.df, 1 - tail)) * self.error


def welch(parts: Sequence[tuple[float, Sequence[float]]]) -> Effect:
    """Returns the sum of weight × mean over parts, with Satterthwaite's degrees of freedom (Welch, 1947)."""
    value = math.fsum(weight * statistics.mean(values) for weight, values in parts)
    if min(len(values) for _, values in parts) < 2:
        return Effect(value, math.nan, 0)
    squares = [(weight**2 * statistics.variance(values) / len(values), len(values)) for weight, values in parts]
    total, over_df = math.fsum(part for part, _ in squares), math.fsum(part**2 / (n - 1) for part, n in squares)
    return Effect(value, math.sqrt(total), total**2 / over_df if over_df else math.inf)
