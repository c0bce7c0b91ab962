"""The two rules that the simulation compares."""

import numpy as np

from benchmarks.error_rates import CLAIMS, EQUAL, old_verdicts, simulated, verdicts
from workflows.paper import VARIATIONS


def old(**means: float) -> dict[str, int]:
    """The earlier rule's verdicts where base's first seeds are -1, 0 and 1, and the other rows' first seed is 0."""
    rows = {name: [means.get(name, 0.0), 99, 99, 99] for name in VARIATIONS} | {"base": [-1.0, 0, 1, 99]}
    (found,) = old_verdicts({name: np.array([seeds]) for name, seeds in rows.items()}).tolist()
    return dict(zip(CLAIMS, found, strict=True))


def test_the_earlier_rule_by_hand() -> None:
    """A row counts beyond 2 √(1/3 + 1) = 2.31 from base and 2 √2 = 2.83 from another row."""
    assert {claim: sign for claim, sign in old().items() if sign} == {EQUAL: 1}
    found = old(A1=-2.4, A4=-2.2, B1=-5.3, B2=-2.4, C1=-9, C2=-5, C3=-2.4, C4=-2.4, D1=2.4, D3=2.2, E=2.4, big=5)
    assert (found["A1 base"], found["A4 base"], found["D1 base"], found["D3 base"]) == (1, 0, -1, 0)
    assert (found["B1 B2 base"], found["C1 C2 base C3"], found["C4 base C5"]) == (1, -1, 0)
    assert (found[EQUAL], found["big best"]) == (-1, 0)
    assert old(B1=-5.2, B2=-2.4)["B1 B2 base"] == 0
    assert (old(big=2.9)["big best"], old(big=2.8)["big best"], old(A2=3)["big best"]) == (1, 0, -1)


def test_claims_that_are_plainly_true_hold_and_false_ones_fail() -> None:
    """In the order of CLAIMS; one head and too many are each other's rivals, as good as each other here."""
    random = np.random.default_rng(0)
    for found in verdicts(simulated(50, 2, 3, random), margin=50):
        assert found.tolist() == [[1] * 10] * 2
    for found in verdicts(simulated(-50, 2, 3, random), margin=50):
        assert found.tolist() == [[0, 0, *[-1] * 6, 1, -1]] * 2
