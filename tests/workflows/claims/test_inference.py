"""The inference layer against scipy, and by hand; test_claims.py simulates error rates."""

import math
from collections.abc import Callable, Sequence
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workflows.claims import inference
from workflows.claims.inference import POSITIVE, Groups, Region, every, holm, within

Rows = dict[str, list[float]]
INF = math.inf
OTHERS = ["b", "c", "d"]
RULES: dict[str, Callable[[Rows, Region], inference.Estimate]] = {
    "difference": lambda rows, region: Groups(rows).difference("a", "b", region),
    "contrast": lambda rows, region: Groups(rows).contrast({"a": 2, "b": -1, "c": -1}, region),
    "trend": lambda rows, region: Groups(rows).trend(["a", *OTHERS], region),
    "best": lambda rows, region: Groups(rows).best("a", OTHERS, region),
    "behind best": lambda rows, region: Groups(rows).behind_best("a", OTHERS, region),
}
"""Every rule, on four rows."""


def at_least(limit: float) -> Region:
    return Region(low=limit)


def own(values: Sequence[float]) -> Groups:
    return Groups({"a": values, "zero": [0.0, 0.0]})


VALUES = st.integers(-40, 40).map(lambda eighths: eighths / 8)
ROWS = st.fixed_dictionaries({name: st.lists(VALUES, min_size=1, max_size=5) for name in "abcd"})
REGIONS = st.one_of(
    st.just(Region()),
    st.builds(at_least, VALUES),
    st.builds(lambda high: Region(high=high), VALUES),
    st.builds(within, st.floats(0.1, 9)),
    st.builds(lambda low, width: Region(low, low + width), VALUES, st.floats(0.1, 9)),
)
UNBALANCED: Rows = {"a": [1.0, 2.5, 2.0], "b": [0.5, 1.5], "c": [1.0, 1.2, 0.1, 0.9], "d": [2.0, 2.3]}


def verdict(tested: inference.Estimate) -> str:
    p_values = tested.p_holds, tested.p_fails
    return inference.decided(*p_values, inference.two_sided(*p_values))


def test_a_verdict_is_definite_at_its_level() -> None:
    """p is twice the smaller one-sided value, or adjusted for a family; the smaller side decides."""
    tested = inference.Estimate(1, 0.1, 2, 3, p_holds=0.025, p_fails=0.975)
    assert (inference.two_sided(tested.p_holds, tested.p_fails), verdict(tested)) == (0.05, "holds")
    assert verdict(inference.Estimate(1, 0.1, 2, 3, p_holds=0.0251, p_fails=0.975)) == "undecided"
    against = inference.Estimate(-1, -2, -0.1, 3, p_holds=0.99, p_fails=0.01)
    assert (inference.two_sided(against.p_holds, against.p_fails), verdict(against)) == (0.02, "fails")
    assert [inference.decided(0.99, 0.01, p) for p in (0.05, 0.051)] == ["fails", "undecided"]
    assert inference.two_sided(0.7, 1) == 1


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@given(rows=ROWS, region=REGIONS)
def test_p_and_intervals_agree(rule: Callable[[Rows, Region], inference.Estimate], rows: Rows, region: Region) -> None:
    tested = rule(rows, region)
    assert tested.low <= tested.value <= tested.high
    expected = "undecided"
    if (region.low == -INF or region.low < tested.low) and (tested.high < region.high or region.high == INF):
        expected = "holds"
    elif tested.high < region.low or region.high < tested.low:
        expected = "fails"
    assert verdict(tested) == expected
    assert 0 <= min(tested.p_holds, tested.p_fails) <= max(tested.p_holds, tested.p_fails) <= 1


def test_a_difference_of_two_rows_is_welchs() -> None:
    of, minus = UNBALANCED["a"], UNBALANCED["c"]
    tested = Groups(UNBALANCED).difference("a", "c")
    greater, less = (stats.ttest_ind(of, minus, equal_var=False, alternative=side) for side in ("greater", "less"))
    interval = stats.ttest_ind(of, minus, equal_var=False).confidence_interval(0.95)
    assert (tested.p_holds, tested.p_fails) == pytest.approx((greater.pvalue, less.pvalue))
    assert (tested.low, tested.high) == pytest.approx((interval.low, interval.high))
    assert (tested.value, tested.n) == (pytest.approx(5.5 / 3 - 0.8), 3)
    assert verdict(Groups({"a": of, "d": [2.0]}).difference("a", "d")) == "undecided"  # d has a single seed


def test_a_contrast_has_satterthwaites_degrees_of_freedom() -> None:
    tested = Groups(UNBALANCED).contrast({"c": 2, "b": -1, "d": -1}, within(3))
    parts = {name: weight**2 * np.var(UNBALANCED[name], ddof=1) for name, weight in (("c", 2), ("b", 1), ("d", 1))}
    of_means = [(part / len(UNBALANCED[name]), len(UNBALANCED[name]) - 1) for name, part in parts.items()]
    total = sum(part for part, _ in of_means)
    df, value, error = total**2 / sum(part**2 / n for part, n in of_means), 1.6 - 1 - 2.15, math.sqrt(total)
    assert (tested.value, tested.n) == (pytest.approx(value), 2)
    assert (tested.low, tested.high) == pytest.approx(stats.t.interval(0.95, df, value, error))
    assert tested.p_holds == pytest.approx(stats.t.sf((value + 3) / error, df))  # the nearer bound decides
    assert tested.p_fails == pytest.approx(stats.t.cdf((value + 3) / error, df))


def test_equivalence_is_two_one_sided_tests() -> None:
    """On either side the nearer margin decides. An effect beyond a margin fails on that side."""
    for sign in (1, -1):
        near = own([sign * each for each in (0.5, 0.7, 0.6)]).difference("a", "zero", within(1))
        assert near.p_holds == pytest.approx(stats.ttest_1samp([0.5, 0.7, 0.6], 1, alternative="less").pvalue)
        far = own([sign * each for each in (1.5, 1.7, 1.6)]).difference("a", "zero", within(1))
        assert far.p_fails == pytest.approx(stats.ttest_1samp([1.5, 1.7, 1.6], 1, alternative="greater").pvalue)
        assert (verdict(near), verdict(far)) == ("holds", "fails")


def test_a_trend_is_the_slope_of_least_squares() -> None:
    balanced = {"a": [1.0, 2.0], "b": [2.5, 1.5], "c": [3.0, 2.0], "d": [2.0, 4.0], "e": [0.0, 3.0]}
    rows = Groups(balanced)
    for names in ("ab", "abc", "abcd", "dcba"):
        tested = rows.trend([*names])
        places = [place for place, name in enumerate(names) for _ in balanced[name]]
        slope = stats.linregress(places, [value for name in names for value in balanced[name]]).slope
        assert tested.value == pytest.approx(slope)
        steps = np.arange(len(names)) - (len(names) - 1) / 2
        weighted = rows.contrast(dict(zip(names, steps / sum(steps**2), strict=True)))
        assert (tested.low, tested.high) == pytest.approx((weighted.low, weighted.high))
    means = [np.mean(UNBALANCED[name]) for name in "abcd"]
    tested = Groups(UNBALANCED).trend([*"abcd"])
    assert (tested.value, tested.n) == (pytest.approx(stats.linregress(range(4), means).slope), 2)
    assert tested.p_holds == Groups(UNBALANCED).trend([*"abcd"], POSITIVE).p_holds


def test_the_best_is_compared_with_each_rival() -> None:
    rows = Groups(UNBALANCED)
    tested, each = rows.best("a", OTHERS), [rows.difference("a", other) for other in OTHERS]
    assert (tested.value, tested.n) == (min(one.value for one in each), 2)
    assert tested.value == pytest.approx(5.5 / 3 - 2.15)
    assert tested.low == min(one.low for one in each)
    welch = (stats.ttest_ind(UNBALANCED["a"], UNBALANCED[other], equal_var=False) for other in OTHERS)
    assert tested.high == pytest.approx(min(one.confidence_interval(1 - 0.05 / 3).high for one in welch))
    assert tested.p_holds == max(one.p_holds for one in each)
    assert tested.p_fails == min(1, 3 * min(one.p_fails for one in each))
    limit = Region(high=1.5)
    tested, each = rows.best("a", OTHERS, limit), [rows.difference("a", other, limit) for other in OTHERS]
    assert tested.p_holds == 3 * min(one.p_holds for one in each) < 1
    assert tested.p_fails == max(one.p_fails for one in each)
    assert rows.best("a", ["b", "c"]).n == 2
    assert rows.best("a", ["b"], limit) == rows.difference("a", "b", limit)


@given(rows=ROWS, region=REGIONS)
def test_behind_the_best_is_the_best_mirrored(rows: Rows, region: Region) -> None:
    behind = Groups(rows).behind_best("a", OTHERS, region)
    assert Groups(rows).behind_best("a", ["b"], region) == Groups(rows).difference("b", "a", region)
    assert behind.value == max(mean(rows[name]) for name in OTHERS) - mean(rows["a"])
    assert behind.high == max(Groups(rows).difference(name, "a").high for name in OTHERS)
    mirrored = Groups(rows).best("a", OTHERS, Region(-region.high, -region.low))
    assert (behind.low, behind.n) == (-mirrored.high, mirrored.n)
    assert (behind.p_holds, behind.p_fails) == (mirrored.p_holds, mirrored.p_fails)


@pytest.mark.parametrize("rule", RULES)
def test_single_values_decide_nothing(rule: str) -> None:
    tested = RULES[rule]({"a": [900.0], "b": [1.0], "c": [2.0], "d": [3.0]}, POSITIVE)
    assert (tested.low, tested.high, tested.p_holds, tested.p_fails, tested.n) == (-INF, INF, 1, 1, 1)


def test_equal_values_have_no_noise() -> None:
    for region, p_values in ((POSITIVE, (0, 1)), (at_least(0.1), (1, 1)), (Region(high=-0.1), (1, 0))):
        assert own([0.1] * 3).difference("a", "zero", region) == inference.Estimate(0.1, 0.1, 0.1, 2, *p_values)
    rows = Groups({"a": [0.1] * 3, "b": [0.1] * 2, "c": [0.1] * 2})
    assert verdict(rows.best("a", ["b", "c"])) == verdict(rows.trend(["a", "b", "c"])) == "undecided"
    assert math.copysign(1, rows.behind_best("a", ["b"]).value) == 1, "a difference of -0.00"


def test_every_claim_of_several() -> None:
    tested = [inference.Estimate(0, 0, 0, 1, *p) for p in ((0.01, 0.99), (0.6, 0.004), (0.9, 0.2))]
    assert every(tested) == (0.9, pytest.approx(0.012))
    assert every(tested[:1] * 2) == (0.01, 1)


def test_holm_by_hand() -> None:
    """In the original order: 4 x 0.005, 3 x 0.01, 2 x 0.03, and no smaller than that for 0.04."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.6, 0.5]) == [1, 1, 1]
    assert (holm([]), holm([0.04]), holm([0.02, 0.02])) == ([], [0.04], [0.04, 0.04])
    assert holm([0, 1]) == [0, 1]
