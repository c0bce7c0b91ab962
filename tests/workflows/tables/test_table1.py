"""Table 1: exponents are those of what was counted and measured, and the notes say which are not the paper's."""

import pytest

from tests.support.tiny_complexity import EXPECTED, counts, measurements, theory_s
from workflows.tables.render import render_markdown
from workflows.tables.table1 import Table1, compute


@pytest.fixture
def table() -> Table1:
    """A table of times as in theory."""
    return compute(counts(), measurements(theory_s))


def test_exponents_are_those_of_flop_and_of_median_times(table: Table1) -> None:
    """One round of a disturbed time changes nothing; intervals hold the exponents."""
    assert {layer.name: (layer.expected["n"], layer.expected["d"]) for layer in table.layers} == EXPECTED
    for layer in table.layers:
        for variable, expected in layer.expected.items():
            assert layer.fits["time"][variable].value == pytest.approx(expected, abs=1e-6)
            assert layer.fits["flop"][variable].value == pytest.approx(expected, abs=0.05 if variable == "d" else 1e-6)
        assert layer.fits["memory"]["n"].value == pytest.approx(1)
        first, fits = layer.over_n[0], layer.fits
        for quantity, factor in (("forward", 1), ("backward", 2), ("time", 3)):
            assert fits[quantity]["n"].factor == pytest.approx(factor * fits["forward"]["n"].factor)
        assert all(fit.low <= fit.value <= fit.high for fits_ in layer.fits.values() for fit in fits_.values())
        assert (first.forward_s, first.backward_s, first.time_s) == pytest.approx(
            tuple(factor * theory_s(layer.name, 64, 32) for factor in (1, 2, 3))
        )
    with_projections = table.layers[0].projected
    assert 1 < with_projections["n"].value < 2
    assert 1 < with_projections["d"].value < 2
    assert [bool(layer.projected) for layer in table.layers] == [True, False, False, False, False]
    assert "Every exponent of FLOP and of time is within 0.15 of the theory." in table.notes


def test_a_crossover_is_where_self_attention_becomes_the_slower(table: Table1) -> None:
    """By time at n = 200; with projections not up to the longest n measured."""
    (row,) = table.crossovers
    assert row.n == pytest.approx(200)
    assert (row.n_projected, row.longest_n) == (None, 256)
    markdown = render_markdown(table)
    assert "| 32 | 1 | 200 | not up to 256 |" in markdown
    assert table.metrics["crossover_n.d_32.batch_1"] == row.n


def test_exponents_far_from_the_theory_are_named() -> None:
    """Each with its layer, quantity and what it should be."""
    table = compute(counts(), measurements(lambda name, n, d: theory_s(name, n, d) * (d if name == "recurrent" else 1)))
    assert "More than 0.15 from the theory: recurrent, time over d (3.00 instead of 2)." in table.notes
