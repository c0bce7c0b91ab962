"""The verdicts of claims on speed and memory change with the timed rounds."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pipeline.complexity.layer_types.sizes import LayerType
from pipeline.complexity.records import (
    ArgumentTimes,
    Crossover,
    CrossoverPoint,
    LayerMeasurements,
    Measurements,
    PassMeasurements,
    SizeMeasurements,
)
from pipeline.complexity.settings import ArgumentSettings, TimingSettings
from tests.support.tiny_complexity import measurements
from workflows.claims import timings
from workflows.claims.claim import Evidence, Judged, judged
from workflows.claims.functions import ADDITIVE, SCALED, UNSCALED

ROUNDS = (0.99, 1.0, 1.01)


def passes(ratio: float, peak_bytes: int = 100, rounds: Sequence[float] = ROUNDS) -> PassMeasurements:
    """Rounds of about this duration."""
    return PassMeasurements(rounds_s=tuple(ratio * each for each in rounds), peak_bytes=peak_bytes)


def times(
    additive: Mapping[int, PassMeasurements], heads: Mapping[int, PassMeasurements] | None = None
) -> ArgumentTimes:
    """Times of additive attention by d_k; scaled products take one second and 100 bytes."""
    other = {d_k: passes(1.0, rounds=(1.0, 1.0, 1.0)) for d_k in additive}
    made: dict[str, Any] = {
        "functions": {ADDITIVE: dict(additive), UNSCALED: other, SCALED: other},
        "heads": dict(heads or {1: passes(1.0, rounds=(1.0, 1.0, 1.0)), 8: passes(1.1)}),
        "settings": ArgumentSettings(),
        "timing": TimingSettings(),
        "device": "cpu",
        "device_name": "some CPU",
        "threads": 1,
        "dtype": "float32",
        "torch_version": "2.13",
        "seconds": 1.0,
    }
    return ArgumentTimes(**{name: made[name] for name in ArgumentTimes.model_fields if name in made}, **_swept())


def _swept() -> dict[str, Any]:
    """Other timings, which no claim reads."""
    others = {"recurrent": passes(1.0), "kernels": {3: passes(1.0)}, "windows": {8: passes(1.0)}}
    return {name: value for name, value in others.items() if name in ArgumentTimes.model_fields}


def outcomes(name: str, found: ArgumentTimes | Measurements) -> dict[str, Judged]:
    """Judges claims by one kind of evidence, by a word of their texts."""
    claims = [claim for claim in timings.CLAIMS if claim.needs == (name,)]
    words = {"timed": ("faster", "space", "heads"), "table1": ("recurrence",)}[name]
    return dict(zip(words, judged(claims, Evidence({name: found})), strict=True))


SLOW = {4: passes(1.5), 64: passes(3.0, 101)}
"""Slower at every d_k, much slower at the paper's, and with more memory."""


@pytest.mark.parametrize(
    ("additive", "verdict"),
    [
        (SLOW, "holds"),
        ({**SLOW, 64: passes(1.9)}, "fails"),  # not much slower at the paper's d_k
        ({**SLOW, 4: passes(0.9)}, "fails"),  # faster at another
        ({**SLOW, 4: passes(1.05, rounds=(0.9, 1.0, 1.1))}, "undecided"),
    ],
)
def test_much_faster(additive: Mapping[int, PassMeasurements], verdict: str) -> None:
    """At every d_k, and twice as fast at the one nearest to 64, whose ratio comes first."""
    outcome = outcomes("timed", times(additive))["faster"]
    assert outcome.verdict == verdict
    first = outcome.effects[0]
    assert (first.text, first.above, first.n) == ("additive / scaled, time at d_k = 64", 2.0, 3)
    assert first.value == pytest.approx(additive[64].median_s, rel=0.01)
    assert first.low is not None
    assert first.low < first.value


def test_memory_is_exact() -> None:
    """One byte less at any d_k suffices."""
    larger = {4: passes(1.5, 101), 64: passes(3.0, 101)}
    assert outcomes("timed", times(larger))["space"].verdict == "holds"
    assert outcomes("timed", times({**larger, 4: passes(1.5, 100)}))["space"].verdict == "fails"


@pytest.mark.parametrize(("ratio", "verdict"), [(1.1, "holds"), (0.6, "holds"), (2.1, "fails"), (0.4, "fails")])
def test_heads_cost_about_the_same(ratio: float, verdict: str) -> None:
    """Within a factor of two either way; eight heads are compared with one."""
    heads = {1: passes(1.0, rounds=(1.0, 1.0, 1.0)), 2: passes(9.0), 8: passes(ratio), 16: passes(9.0)}
    assert outcomes("timed", times(SLOW, heads))["heads"].verdict == verdict


def machine(attention: float, projected: float, spread: Sequence[float] = ROUNDS) -> Measurements:
    """A machine on which self-attention takes this multiple of recurrence's time, also with projections."""

    def layer(name: LayerType, ratio: float) -> LayerMeasurements:
        sizes = tuple(
            SizeMeasurements(
                length=n,
                width=32,
                forward_s=tuple(n * ratio * each for each in ROUNDS),
                backward_s=(n * ratio,) * 3,
                peak_bytes=1,
            )
            for n in (16, 64)
        )
        return LayerMeasurements(name=name, sizes=sizes)

    points = tuple(
        CrossoverPoint(
            length=n,
            attention_s=attention,
            projected_s=projected,
            recurrent_s=1.0,
            projected_rounds_s=tuple((projected + 0.01 * (n == 16)) * each for each in spread),
            recurrent_rounds_s=(1.0,) * len(spread),
        )
        for n in (8, 16, 32, 64)
    )
    return measurements(lambda *_: 1.0).model_copy(
        update={
            "layers": (layer("self-attention", attention), layer("recurrent", 1.0)),
            "crossovers": (Crossover(width=32, batch=16, points=points),),
        }
    )


@pytest.mark.parametrize(
    ("attention", "projected", "verdict"),
    [
        (0.5, 0.9, "holds"),
        (1.5, 1.6, "fails"),  # slower everywhere: no curves cross, and it must not hold
        (0.5, 1.1, "fails"),  # faster only without the projections that every model has
        (1.5, 0.9, "fails"),
    ],
)
def test_faster_than_recurrence_below_d(attention: float, projected: float, verdict: str) -> None:
    """Wherever n is less than d, as counted in Table 1 and with projections."""
    outcome = outcomes("table1", machine(attention, projected))["recurrence"]
    assert outcome.verdict == verdict
    faster = 2 if projected < 1 else 0
    assert outcome.here == f"with projections, faster at {faster} of 2 sizes with n < d"
    plain, slowest = outcome.effects
    assert (plain.text, plain.unit, plain.above) == ("recurrent / self-attention, n = 16, d = 32", "×", 1.0)
    assert plain.value == pytest.approx(1 / attention, rel=0.001)
    assert slowest.text == "recurrent / self-attention, with projections, n = 16, d = 32, 16 at once"
    assert slowest.value == pytest.approx(1 / (projected + 0.01), rel=0.001)


def test_times_with_projections_have_noise_too() -> None:
    """A size at which self-attention is slower within the noise decides nothing. Equal speed is not faster."""
    assert outcomes("table1", machine(0.5, 1.0, (1.0, 1.0)))["recurrence"].here.startswith(
        "with projections, faster at 0 of 2"
    )
    assert outcomes("table1", machine(0.5, 1.02, (0.9, 1.0, 1.1)))["recurrence"].verdict == "undecided"
    assert outcomes("table1", machine(0.5, 0.9, (0.7, 1.0, 1.3)))["recurrence"].verdict == "undecided"


def test_medians_of_an_earlier_version_decide_nothing() -> None:
    """Their rounds were not kept, so their variance is unknown."""
    measured = machine(0.5, 0.9)
    (crossover,) = measured.crossovers
    points = [
        point.model_copy(update={"projected_rounds_s": (), "recurrent_rounds_s": ()}) for point in crossover.points
    ]
    earlier = measured.model_copy(update={"crossovers": (crossover.model_copy(update={"points": tuple(points)}),)})
    outcome = outcomes("table1", earlier)["recurrence"]
    assert (outcome.verdict, outcome.effects[1].n, outcome.effects[1].low) == ("undecided", 1, None)
    assert outcome.effects[1].value == pytest.approx(1 / 0.9)
    without = measured.model_copy(update={"crossovers": ()})
    outcome = outcomes("table1", without)["recurrence"]
    assert (outcome.verdict, outcome.here, len(outcome.effects)) == ("holds", "", 1)
    nothing = without.model_copy(
        update={"layers": tuple(layer.model_copy(update={"sizes": ()}) for layer in without.layers)}
    )
    assert outcomes("table1", nothing)["recurrence"].verdict == "not run"
