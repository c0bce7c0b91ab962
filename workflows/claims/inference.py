"""Tests claims: a claim is a region of an effect, judged by the effect's 95% confidence interval.

    rows = Groups({"base": [4.61, 4.63, 4.60], "one head": [4.70, 4.68, 4.71]})     # one value per seed
    rows.difference("one head", minus="base")                                       # an Estimate

The claim holds if the interval lies wholly inside the region, fails if it lies wholly outside, and is undecided
otherwise. Values are assumed to be normal over seeds, and each row has its own variance (Welch). The probability of a
false "holds" is about 2.5%. So is that of a false "fails", except for a region narrower than the standard error: there
it is 5%. The p-values give the same verdicts as the interval, and `holm` adjusts them for a family of claims.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from workflows.claims.welch import ALPHA, welch

Decided = Literal["holds", "fails", "undecided"]


class Region(NamedTuple):
    """The claim low < effect < high."""

    low: float = -math.inf
    high: float = math.inf


POSITIVE = Region(low=0.0)


def within(margin: float) -> Region:
    """Returns the claim of equivalence, |effect| < margin: two one-sided tests (TOST) at 2.5% each."""
    return Region(-margin, margin)


@dataclass(frozen=True)
class Estimate:
    """An effect, and the evidence for and against a claim about it."""

    value: float
    low: float
    """Lower end of the 95% confidence interval; -inf if one observation per group leaves its width unknown."""
    high: float
    n: int
    """Trained models in the smallest group."""
    p_holds: float
    """One-sided p-value of the hypothesis that the claim is false: small if the claim holds."""
    p_fails: float
    """One-sided p-value of the hypothesis that the claim is true: small if the claim fails."""


def two_sided(p_holds: float, p_fails: float) -> float:
    """Returns the smallest level at which either of two one-sided p-values gives a verdict: the p-value for `holm`."""
    return min(1.0, 2 * min(p_holds, p_fails))


def decided(p_holds: float, p_fails: float, p: float) -> Decided:
    """Returns the verdict of the smaller one-sided p-value, or undecided if `p`, perhaps adjusted, is too large."""
    if p > ALPHA:
        return "undecided"
    return "holds" if p_holds < p_fails else "fails"


@dataclass(frozen=True)
class Groups:
    """A metric's values by row of a table, one per seed: at least one per row, all finite."""

    values: Mapping[str, Sequence[float]]

    def contrast(self, weights: Mapping[str, float], region: Region = POSITIVE) -> Estimate:
        """Tests the weighted sum of the rows' means."""
        return self._smallest([weights], region)

    def difference(self, of: str, minus: str, region: Region = POSITIVE) -> Estimate:
        """Tests the difference of two rows' means."""
        return self.best(of, [minus], region)

    def trend(self, names: Sequence[str], region: Region = POSITIVE) -> Estimate:
        """Tests the least-squares slope over rows in order, in units of the metric per row: positive if they rise.

        Rows are equally spaced and have equal weight, whatever their number of seeds.
        """
        steps = [i - (len(names) - 1) / 2 for i in range(len(names))]
        scale = sum(step**2 for step in steps)
        return self.contrast({name: step / scale for name, step in zip(names, steps, strict=True)}, region)

    def best(self, name: str, others: Sequence[str], region: Region = POSITIVE) -> Estimate:
        """Tests the mean of row `name` less the largest of the others: positive if it is the best.

        This effect is the smallest of the k differences from the others. The smallest of their lower bounds at 97.5% is
        below it unless the bound of the smallest difference misses (intersection-union test; Berger, 1982). The
        smallest of their upper bounds at 1 - 2.5%/k is above it if none misses (Bonferroni; Hsu, 1984, has exact
        constants).
        """
        return self._smallest([{name: 1.0, other: -1.0} for other in others], region)

    def behind_best(self, name: str, others: Sequence[str], region: Region = POSITIVE) -> Estimate:
        """Tests the largest mean of the others less the mean of row `name`, with the bounds of `best`."""
        lead = self.best(name, others, Region(-region.high, -region.low))
        return replace(lead, value=0 - lead.value, low=-lead.high, high=-lead.low)

    def _smallest(self, contrasts: Sequence[Mapping[str, float]], region: Region) -> Estimate:
        """Tests the smallest of several effects (see `best`). For a single effect this is Welch's test."""
        of_rows = [[(weight, self.values[name]) for name, weight in weights.items()] for weights in contrasts]
        effects, several = [welch(of_row) for of_row in of_rows], len(contrasts)

        def p_above(limit: float) -> float:
            return max(effect.p_above(limit) for effect in effects)

        def p_below(limit: float) -> float:
            return min(1.0, several * min(effect.p_below(limit) for effect in effects))

        return Estimate(
            min(effect.value for effect in effects),
            min(effect.value - effect.margin(ALPHA / 2) for effect in effects),
            min(effect.value + effect.margin(ALPHA / 2 / several) for effect in effects),
            min(len(self.values[name]) for weights in contrasts for name in weights),
            p_holds=max(p_above(region.low), p_below(region.high)),
            p_fails=min(p_below(region.low), p_above(region.high)),
        )


def every(tested: Sequence[Estimate]) -> tuple[float, float]:
    """Returns (p_holds, p_fails) of the claim that all of these claims hold. It fails if any fails.

    p_holds is the largest (intersection-union test), p_fails the smallest with Bonferroni's correction.
    """
    return max(each.p_holds for each in tested), min(1.0, len(tested) * min(each.p_fails for each in tested))


def holm(p: Sequence[float]) -> list[float]:
    """Adjusts the p-values of a family of claims for their number. Keeps the order of `p`.

    Holm (1979), "A simple sequentially rejective multiple test procedure". The rate of families with any wrong verdict
    is simulated, not proven, since verdicts have two directions (docs/protocol.md).
    """
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = largest
    return adjusted
