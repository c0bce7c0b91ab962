"""Fits power laws: the exponent of n in a·n^b, as the slope of a line through logarithms, with its confidence."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

CONFIDENCE = 0.95


class Exponent(NamedTuple):
    """A fitted exponent b of y = a·x^b."""

    value: float
    low: float
    """The ends of its 95 % confidence interval, by Student's distribution of the residuals."""
    high: float
    factor: float
    """a."""


def fit(points: Sequence[tuple[float, float]]) -> Exponent:
    """Fits y = a·x^b to points (x, y), by least squares of the logarithms.

    Raises ValueError for fewer than three points, which leave nothing to tell the confidence by.
    """
    if len(points) < 3:
        raise ValueError(f"{len(points)} points do not tell how certain an exponent is; give at least three")
    from scipy.stats import linregress, t  # imports slowly, and a finished table does not need it

    line = linregress([math.log(x) for x, _ in points], [math.log(y) for _, y in points])
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(points) - 2)) * float(line.stderr)
    slope = float(line.slope)
    return Exponent(slope, slope - half, slope + half, math.exp(float(line.intercept)))


def crossing(points: Sequence[tuple[float, float, float]]) -> float | None:
    """Returns the x at which the second of two curves falls below the first; None if it never does.

    Points are (x, first y, second y), x ascending. Between two points both curves are power laws.
    """
    for (x_0, first_0, second_0), (x_1, first_1, second_1) in pairwise(points):
        before, after = math.log(first_0 / second_0), math.log(first_1 / second_1)
        if before <= 0 < after:
            return x_0 * (x_1 / x_0) ** (before / (before - after))
    return None
