"""pipeline.complexity.exponents: fits find the exponents of power laws, with the confidence the points allow."""

import random

import pytest

from pipeline.complexity.exponents import crossing, fit

SIZES = (32, 64, 128, 256, 512)


def test_an_exact_power_law_is_found_exactly() -> None:
    assert fit([(x, 3 * x**1.5) for x in SIZES]) == pytest.approx((1.5, 1.5, 1.5), abs=1e-9)


def test_the_interval_holds_the_exponent_19_times_in_20() -> None:
    source = random.Random(5)
    held = 0
    for _ in range(600):
        fitted = fit([(x, x**2 * source.lognormvariate(0, 0.1)) for x in SIZES])
        assert fitted.low < fitted.value < fitted.high
        held += fitted.low <= 2 <= fitted.high
    assert 0.92 < held / 600 < 0.98


def test_a_crossing_is_found_between_points() -> None:
    assert crossing([(x, x**2 / 100, 2.0 * x) for x in SIZES]) == pytest.approx(200)
