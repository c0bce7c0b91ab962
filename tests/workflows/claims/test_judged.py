"""Verdicts on a difference by its interval: what is claimed to be small must be so wherever in it the truth may lie."""

import math

import pytest

from workflows.claims.judged import Difference


@pytest.mark.parametrize(
    ("values", "positive", "at_most", "within"),
    [
        ([0.02, -0.02, 0.0], "within noise", "holds", "holds"),
        ([0.3, 0.9, 0.6], "within noise", "within noise", "within noise"),  # too noisy to be called alike
        ([-0.3, -0.9, -0.6], "within noise", "within noise", "within noise"),
        ([0.5, 0.51, 0.49], "holds", "fails", "fails"),
        ([-0.5, -0.51, -0.49], "fails", "holds", "fails"),
        ([0.05, 0.051, 0.049], "holds", "holds", "holds"),
        ([0.0, 0.0, 0.0], "within noise", "holds", "holds"),
    ],
)
def test_verdicts(values: list[float], positive: str, at_most: str, within: str) -> None:
    """Whether it is positive, at most 0.1, and at most 0.1 either way."""
    difference = Difference.over(values)
    assert (difference.verdict(), difference.at_most(0.1), difference.within(0.1)) == (positive, at_most, within)


def test_a_difference_has_students_interval() -> None:
    """1, 2 and 3 have mean 2, deviation 1 and so half an interval of 4.303 / √3; a single seed has none."""
    difference = Difference.over([1.0, 2.0, 3.0])
    assert (difference.mean, difference.n) == (2, 3)
    assert difference.half == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    with pytest.raises(ValueError, match="at least two"):
        Difference.over([1.0])
