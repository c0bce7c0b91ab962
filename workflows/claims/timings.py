"""The claims on speed and memory (§3.2, §4), by what was timed on this machine.

Every layer is timed once a round, so ratios of one round's times are paired; intervals are over the rounds, of the
logarithm of the ratio, and say nothing of other machines.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from model.config import BASE
from pipeline.complexity.figures import ArgumentTimes, Measurements, SizeMeasurements
from pipeline.complexity.layer_types.sizes import LayerType
from workflows.claims.claim import Claim, Effect, Finding
from workflows.claims.functions import ADDITIVE, SCALED
from workflows.claims.inference import Estimate, Region, every, paired

MUCH = 2.0
"""From which ratio of times a function is much faster, at the paper's d_k."""
CONSTANT = 2.0
"""Costs are similar within this factor."""
COMMAND = "python -m workflows.reproduce_claims --sections 3.2,4"
FAMILY = "timings"


def _ratio(slower_s: Sequence[float], faster_s: Sequence[float], region: Region) -> Estimate:
    """Tests the logarithm of the ratio of two times, a pair a round, for a region of ratios."""
    return paired([math.log(a / b) for a, b in zip(slower_s, faster_s, strict=True)], _logarithm(region))


def _logarithm(region: Region) -> Region:
    """Returns the logarithms of a region of ratios, whose lower limit is above 0."""
    return Region(math.log(region.low), math.log(region.high) if region.high < math.inf else math.inf)


def _effect(text: str, tested: Estimate, region: Region) -> Effect:
    """Returns the effect as a ratio."""
    ratio = replace(tested, value=math.exp(tested.value), low=math.exp(tested.low), high=math.exp(tested.high))
    return Effect.of(text, "×", ratio, region)


def _faster(times: ArgumentTimes) -> Finding:
    """Judges whether additive attention is slower at every d_k, and much slower at the paper's."""
    additive, scaled = times.functions[ADDITIVE], times.functions[SCALED]
    at = min(scaled, key=lambda d_k: abs(d_k - BASE.d_k))
    regions = {d_k: Region(low=MUCH if d_k == at else 1.0) for d_k in sorted(scaled)}
    tested = {d_k: _ratio(additive[d_k].rounds_s, scaled[d_k].rounds_s, region) for d_k, region in regions.items()}
    ordered = [at, *(d_k for d_k in regions if d_k != at)]
    effects = [_effect(f"additive / scaled, time at d_k = {d_k}", tested[d_k], regions[d_k]) for d_k in ordered]
    here = "additive attention as separate operations of torch, which no kernel fuses; scaled as the model's own"
    return Finding(*every([*tested.values()]), effects, here)


def _smaller(times: ArgumentTimes) -> Finding:
    """Judges whether additive attention takes more memory at every d_k."""
    additive, scaled = times.functions[ADDITIVE], times.functions[SCALED]
    larger = {d_k: additive[d_k].peak_bytes / scaled[d_k].peak_bytes for d_k in sorted(scaled)}
    here = f"additive attention takes {min(larger.values()):.1f} to {max(larger.values()):.1f} × the peak memory"
    return Finding.certain(min(larger.values()) > 1, here)


def _heads(times: ArgumentTimes) -> Finding:
    """Judges whether the paper's number of heads takes about as long as one head of full width."""
    at, region = min(times.heads, key=lambda h: abs(h - BASE.n_heads)), Region(1 / CONSTANT, CONSTANT)
    tested = _ratio(times.heads[at].rounds_s, times.heads[min(times.heads)].rounds_s, region)
    return Finding(tested.p_holds, tested.p_fails, [_effect(f"{at} heads / 1 head, time", tested, region)])


def _rounds_s(size: SizeMeasurements) -> list[float]:
    return [forward + backward for forward, backward in zip(size.forward_s, size.backward_s, strict=True)]


def _recurrence(measured: Measurements) -> Finding | None:
    """Judges whether self-attention is faster than recurrence wherever n < d.

    Without projections, as Table 1 counts it, by the rounds; with its projections, as a model has it, by medians.
    """
    layers: Mapping[LayerType, Mapping[tuple[int, int], SizeMeasurements]] = {
        layer.name: {(size.length, size.width): size for size in layer.sizes} for layer in measured.layers
    }
    region, tested = Region(low=1.0), {}
    for (n, d), size in layers["self-attention"].items():
        if n < d and (recurrent := layers["recurrent"].get((n, d))):
            tested[n, d] = _ratio(_rounds_s(recurrent), _rounds_s(size), region)
    projected = [
        (point.recurrent_s / point.projected_s, f"n = {point.length}, d = {crossover.width}, {crossover.batch} at once")
        for crossover in measured.crossovers
        for point in crossover.points
        if point.length < crossover.width
    ]
    if not tested and not projected:
        return None
    effects = [
        _effect(f"recurrent / self-attention, n = {n}, d = {d}", each, region) for (n, d), each in tested.items()
    ]
    p_holds, p_fails = every([*tested.values()]) if tested else (0.0, 1.0)
    slower = [(ratio, where) for ratio, where in projected if ratio <= 1]
    here = f"with projections, faster at {len(projected) - len(slower)} of {len(projected)} sizes with n < d"
    if slower:
        ratio, where = min(slower)
        return Finding(1.0, 0.0, effects, f"{here}; {ratio:.2f} × as fast at {where}")
    return Finding(p_holds, p_fails, effects, here)


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "3.2.1",
        "dot-product attention is much faster than additive attention in practice",
        FAMILY,
        ("timed",),
        _faster,
        "timing",
        lacks=COMMAND,
    ),
    Claim(
        "3.2.1",
        "dot-product attention is more space-efficient than additive attention in practice",
        FAMILY,
        ("timed",),
        _smaller,
        "timing",
        lacks=COMMAND,
    ),
    Claim(
        "3.2.2",
        "h heads of d_model / h cost about as much as one head of full width",
        FAMILY,
        ("timed",),
        _heads,
        "timing",
        lacks=COMMAND,
    ),
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
