"""Claims on speed and memory (§3.2, §4), by timings on this machine.

Every layer is timed once per round, so ratios of times are paired by round. Intervals are over rounds and do not cover
other machines.
"""

from collections.abc import Callable, Mapping

from model.config import BASE
from pipeline.complexity.layer_types.sizes import LayerType
from pipeline.complexity.records import ArgumentTimes, Measurements, SizeMeasurements
from workflows.claims.claim import Claim, Effect, Finding
from workflows.claims.functions import ADDITIVE, SCALED
from workflows.claims.inference import Region, at_least, ratio

MUCH = 2.0
"""The minimum ratio of times for "much faster", at the paper's d_k."""
CONSTANT = 2.0
"""Costs are similar within this factor."""
COMMAND = "python -m workflows.reproduce_claims --sections 3.2,4"


def _faster(times: ArgumentTimes) -> Finding:
    """Judges whether additive attention is slower at every d_k, and much slower at the paper's."""
    additive, scaled = times.functions[ADDITIVE], times.functions[SCALED]
    at = min(scaled, key=lambda d_k: abs(d_k - BASE.d_k))
    tested = {
        f"additive / scaled, time at d_k = {d_k}": ratio(
            additive[d_k].rounds_s, scaled[d_k].rounds_s, at_least(MUCH if d_k == at else 1.0)
        )
        for d_k in (at, *sorted(scaled.keys() - {at}))
    }
    here = "additive attention as separate operations of torch, which no kernel fuses; scaled as the model's own"
    return Finding.all_of("×", tested, here)


def _smaller(times: ArgumentTimes) -> Finding:
    """Judges whether additive attention takes more memory at every d_k."""
    additive, scaled = times.functions[ADDITIVE], times.functions[SCALED]
    larger = {d_k: additive[d_k].peak_bytes / scaled[d_k].peak_bytes for d_k in sorted(scaled)}
    here = f"additive attention takes {min(larger.values()):.1f} to {max(larger.values()):.1f}× the peak memory"
    return Finding.certain(min(larger.values()) > 1, here)


def _heads(times: ArgumentTimes) -> Finding:
    """Judges whether the paper's number of heads takes about as long as one head of full width."""
    at = min(times.heads, key=lambda h: abs(h - BASE.n_heads))
    one = times.heads[min(times.heads)]
    tested = ratio(times.heads[at].rounds_s, one.rounds_s, Region(1 / CONSTANT, CONSTANT))
    return Finding.all_of("×", {f"{at} heads / 1 head, time": tested})


def _rounds_s(size: SizeMeasurements) -> list[float]:
    return [forward + backward for forward, backward in zip(size.forward_s, size.backward_s, strict=True)]


def _recurrence(measured: Measurements) -> Finding | None:
    """Judges whether self-attention is faster than recurrence wherever n < d.

    Without projections, like in Table 1, and with them, like in a model. Of the latter, the slowest is shown.
    """
    layers: Mapping[LayerType, Mapping[tuple[int, int], SizeMeasurements]] = {
        layer.name: {(size.length, size.width): size for size in layer.sizes} for layer in measured.layers
    }
    plain = {
        f"n = {n}, d = {d}": ratio(_rounds_s(recurrent), _rounds_s(size), at_least(1.0))
        for (n, d), size in layers["self-attention"].items()
        if n < d and (recurrent := layers["recurrent"].get((n, d)))
    }
    projected = {
        f"with projections, n = {point.length}, d = {crossover.width}, {crossover.batch} at once": ratio(
            point.recurrent_rounds_s or [point.recurrent_s],
            point.projected_rounds_s or [point.projected_s],
            at_least(1.0),
        )
        for crossover in measured.crossovers
        for point in crossover.points
        if point.length < crossover.width
    }
    tested = plain | projected
    if not tested:
        return None
    slowest = sorted(projected, key=lambda where: projected[where].value)[:1]
    effects = (Effect.of(f"recurrent / self-attention, {where}", "×", tested[where]) for where in (*plain, *slowest))
    faster = sum(each.value > 1 for each in projected.values())
    here = f"with projections, faster at {faster} of {len(projected)} sizes with n < d" if projected else ""
    return Finding.of([*tested.values()], effects, here)


def _claim(section: str, text: str, judge: Callable[[ArgumentTimes], Finding]) -> Claim:
    return Claim(section, text, "timings", ("timed",), judge, "timing", lacks=COMMAND)


CLAIMS: tuple[Claim, ...] = (
    _claim("3.2.1", "dot-product attention is much faster than additive attention in practice", _faster),
    _claim("3.2.1", "dot-product attention is more space-efficient than additive attention in practice", _smaller),
    _claim("3.2.2", "h heads of d_model / h cost about as much as one head of full width", _heads),
    Claim(
        "4",
        "self-attention is faster than recurrence where n is smaller than d",
        "Table 1",
        ("table1",),
        _recurrence,
        "timing",
        lacks="python -m workflows.reproduce_table1",
    ),
)
