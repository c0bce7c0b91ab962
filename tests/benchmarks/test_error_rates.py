"""The two rules that the simulation compares."""

import numpy as np
import pytest

from benchmarks.error_rates import CLAIMS, EQUAL, family, old_verdicts, rows_of, simulated, verdicts
from workflows.claims.variations import MARGIN_NATS
from workflows.paper import VARIATIONS


def old(**means: float) -> dict[str, int]:
    """The earlier rule's verdicts if base's first seeds are -1, 0 and 1, and the other rows' first seed is 0."""
    rows = {name: [means.get(name, 0.0), 99, 99, 99] for name in VARIATIONS} | {"base": [-1.0, 0, 1, 99]}
    values = {name: np.array([seeds])[:, :, None] * [1, 1, 1] for name, seeds in rows.items()}
    values["D3"] = values["D3"] * [1, -1, -1]
    (found,) = old_verdicts(values).tolist()
    return dict(zip(CLAIMS, found, strict=True))


def test_the_earlier_rule_by_hand() -> None:
    """A row counts beyond 2 √(1/3 + 1) = 2.31 from base and 2 √2 = 2.83 from another row."""
    assert {claim: sign for claim, sign in old().items() if sign} == {EQUAL: 1}
    assert [*old(A1=-2.4, A4=-2.2, B1=-5.3, B2=-2.4, C1=-9, C2=-5, C3=-2.4, D1=2.4, D3=2.4, E=2.4).values()] == [
        *(1, 1, 0, 1, -1, -1, -1)
    ]
    assert old(B1=-5.2, B2=-2.4)["B1 B2 base"] == old(D3=2.2)["ε_ls 3 metrics"] == 0
    bigger = {"C1": -5.3, "C2": -2.4, "C3": 2.4, "C4": -2.4, "C5": 2.4, "C6": -2.4, "C7": 2.4}
    assert old(**bigger)["C 3 trends"] == 1
    for row in bigger:
        assert old(**{**bigger, row: 0.0})["C 3 trends"] < 1


def test_claims_that_are_plainly_true_hold_and_false_ones_fail() -> None:
    """In the order of CLAIMS. One head and too many are each other's rivals, and equally good here."""
    random = np.random.default_rng(0)
    for found in verdicts(simulated(50, 2, 3, random), margin=50):
        assert found.tolist() == [[1] * 7] * 2
    for found in verdicts(simulated(-50, 2, 3, random), margin=50):
        assert found.tolist() == [[-1, 0, 0, -1, -1, -1, 1]] * 2


def test_the_rows_are_judged_in_nats() -> None:
    """E's margin is one standard deviation."""
    values = simulated(0, 1, 3, np.random.default_rng(0))
    equal = family(rows_of(values, 0, margin=2))[CLAIMS.index(EQUAL)].effects[0]
    difference = (values["base"] - values["E"])[0, :, 0].mean()
    assert equal.value == pytest.approx(MARGIN_NATS / 2 * difference)
    assert equal.above == pytest.approx(-MARGIN_NATS)
