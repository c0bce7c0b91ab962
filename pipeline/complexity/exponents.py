"""Fits power laws a·n^b by linear regression of logarithms, with confidence intervals."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

CONFIDENCE = 0.95


class Exponent(NamedTuple):
    """A fitted exponent b of y = a·x^b."""

    value: float
    margin: float
    """Half of its 95% confidence interval (Student's t)."""


def fit(points: Sequence[tuple[float, float]]) -> Exponent:
    """Fits y = a·x^b to points (x, y), by least squares of the logarithms.

    Raises ValueError for fewer than three points, which leave no residual for an interval.
    """
    if len(points) < 3:
        raise ValueError(f"{len(points)} points give an exponent no confidence interval; use at least three")
    from scipy.stats import linregress, t  # imports slowly, and rendering a table does not need it

    line = linregress([math.log(x) for x, _ in points], [math.log(y) for _, y in points])
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(points) - 2)) * float(line.stderr)
    return Exponent(float(line.slope), half)


def crossing(points: Sequence[tuple[float, float, float]]) -> float | None:
    """Returns the x at which the second of two curves falls below the first, or None.

    Points are (x, first y, second y), x ascending. Between two points both curves are power laws.
    """
    for (x_0, first_0, second_0), (x_1, first_1, second_1) in pairwise(points):
        before, after = math.log(first_0 / second_0), math.log(first_1 / second_1)
        if before <= 0 < after:
            return x_0 * (x_1 / x_0) ** (before / (before - after))
    return None
