"""Table 1: exponents are those of the counts and measurements, and notes list deviations from the paper."""

import pytest

from tests.support.tiny_complexity import counts, measurements, theory_s
from workflows.tables.render import render_markdown
from workflows.tables.table import Results
from workflows.tables.table1 import compute


@pytest.fixture
def results() -> Results:
    """A table of times as in theory."""
    return compute(counts(), measurements(theory_s))


def test_a_crossover_is_where_self_attention_becomes_the_slower(results: Results) -> None:
    """By time at n = 200; with projections not up to the longest n measured."""
    assert "| 32 | 1 | 200 | not up to 256 |" in render_markdown(results)


def test_exponents_far_from_the_theory_are_named() -> None:
    table = compute(counts(), measurements(lambda name, n, d: theory_s(name, n, d) * (d if name == "recurrent" else 1)))
    assert "More than 0.15 from the theory: recurrent, time over d (3.00 instead of 2)." in table.notes
