"""Times the paper's verbal claims about layers (§3.2, §4), next to Table 1.

Every layer is timed once per round, as for Table 1; its peak memory is measured before.

Shapes: B sequences, L length, H heads, K = d_k.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pipeline.complexity.count import SEED
from pipeline.complexity.layer_types.attention_functions import make_function
from pipeline.complexity.layer_types.modules import make, make_projected
from pipeline.complexity.layer_types.sizes import ATTENTION_FUNCTIONS, LayerSizes
from pipeline.complexity.measure import costs, device_of, machine_of, random_input, threads_of
from pipeline.complexity.records import ArgumentTimes, PassMeasurements, TimedArguments
from pipeline.complexity.settings import ArgumentSettings, TimingSettings
from pipeline.store.artifact import Context


class Swept(NamedTuple):
    """A layer to time on sequences of `length` positions."""

    sweep: str
    value: int
    """k, r or h; for the recurrent layer, its width."""
    layer: nn.Module
    length: int


def swept(settings: ArgumentSettings) -> Iterator[Swept]:
    """Yields the recurrent layer for comparison, and layers for each k, r and h."""
    d, n = settings.width, settings.length
    yield Swept("recurrent", d, make("recurrent", LayerSizes(d)), n)
    for k in settings.kernels:
        yield Swept("kernels", k, make("convolutional", LayerSizes(d, kernel=k)), n)
    for r in settings.windows:
        layer = make("restricted self-attention", LayerSizes(d, window=r))
        yield Swept("windows", r, layer, settings.window_length)
    for h in settings.heads:
        yield Swept("heads", h, make_projected("self-attention", LayerSizes(d, n_heads=h)), n)


class SelfAttentionBy(nn.Module):
    """An attention function with queries, keys and values equal to the input."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, x_BHLK: Tensor) -> Tensor:
        """x_BHLK -> x_BHLK."""
        y_BHLK: Tensor = self.function(x_BHLK, x_BHLK, x_BHLK)
        return y_BHLK


def time_(context: Context, settings: ArgumentSettings, timing: TimingSettings) -> TimedArguments:
    """Writes times and peak memory of the layers, and of §3.2.1's attention functions over d_k.

    Raises UserError if a GPU is requested and there is none.
    """
    device = device_of(context, timing)
    started_s = time.monotonic()
    torch.manual_seed(SEED)
    with threads_of(timing):
        cases = {}
        for sweep, value, layer, length in swept(settings):
            cases[sweep, value] = layer.to(device), random_input(timing.batch, length, settings.width, device)
        n_heads, length = settings.attention_heads, settings.attention_length
        for d_k in settings.attention_d_k:
            x_BHLK = random_input(timing.batch * n_heads, length, d_k, device).view(timing.batch, n_heads, length, d_k)
            for function in ATTENTION_FUNCTIONS:
                cases[function, d_k] = SelfAttentionBy(make_function(function, n_heads, d_k)).to(device), x_BHLK
        times: dict[str, dict[int, PassMeasurements]] = {}
        for (sweep, value), (peak, rounds) in zip(cases, costs(context, list(cases.values()), timing), strict=True):
            measured = PassMeasurements(rounds_s=tuple(map(sum, rounds)), peak_bytes=peak)
            times.setdefault(sweep, {})[value] = measured
        machine = machine_of(device, timing, started_s)
    return TimedArguments(context.folder).write(
        ArgumentTimes(
            recurrent=times["recurrent"][settings.width],
            kernels=times["kernels"],
            windows=times["windows"],
            heads=times["heads"],
            functions={function: times[function] for function in ATTENTION_FUNCTIONS},
            settings=settings,
            **machine.model_dump(),
        )
    )
