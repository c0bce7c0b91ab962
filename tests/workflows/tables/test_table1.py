"""Table 1: exponents are those of the counts and measurements, and notes list deviations from the paper."""

import pytest

from tests.support.tiny_complexity import EXPECTED, counts, measurements, theory_s
from workflows.tables.render import render_markdown
from workflows.tables.table import Results
from workflows.tables.table1 import compute


@pytest.fixture
def results() -> Results:
    """A table of times as in theory."""
    return compute(counts(), measurements(theory_s))


def test_exponents_are_those_of_flop_and_of_median_times(results: Results) -> None:
    """One disturbed round changes nothing. FLOP with projections grow faster than without."""
    main, _, _, exponents = results.tables
    assert [row.name for row in main.rows] == [*EXPECTED]
    for row in main.rows:
        for variable, expected in zip("nd", EXPECTED[row.name], strict=True):  # type: ignore[index]
            assert row.values[f"{variable}.paper"] == expected
            assert row.values[f"{variable}.time"] == pytest.approx(expected, abs=1e-6)
            flop = row.values[f"{variable}.flop"]
            assert flop == pytest.approx(expected, abs=0.05 if variable == "d" else 1e-6)
            assert results.metrics[f"exponent_{variable}.flop.{row.name}"] == flop
    fitted = {(row.name, row.values["of"]): row.values for row in exponents.rows}
    for name in EXPECTED:
        assert fitted[name, "peak memory"]["n"] == pytest.approx(1)
        assert fitted[name, "time, backward"]["n"] == pytest.approx(EXPECTED[name][0])
    assert [name for name, of in fitted if of == "FLOP with projections"] == ["self-attention"]
    with_projections = fitted["self-attention", "FLOP with projections"]
    assert all(1 < with_projections[variable] < 2 for variable in "nd")  # type: ignore[operator]
    assert "Every exponent of FLOP and of time is within 0.15 of the theory." in results.notes


def test_a_crossover_is_where_self_attention_becomes_the_slower(results: Results) -> None:
    """By time at n = 200; with projections not up to the longest n measured."""
    assert "| 32 | 1 | 200 | not up to 256 |" in render_markdown(results)


def test_exponents_far_from_the_theory_are_named() -> None:
    """Each with its layer, quantity and expected value."""
    table = compute(counts(), measurements(lambda name, n, d: theory_s(name, n, d) * (d if name == "recurrent" else 1)))
    assert "More than 0.15 from the theory: recurrent, time over d (3.00 instead of 2)." in table.notes
