"""The stage that times what the paper argues of layers in words (§3.2, §4): over k, r, h and the d_k of functions.

Every layer is timed once a round, as those of Table 1 are, and its peak memory measured before.

Shapes: B batch, L length, D width; H heads, K = d_k.
"""

import time

import torch
from torch import Tensor, nn

from pipeline.complexity.figures import ArgumentTimes, CountedArguments, PassMeasurements, TimedArguments
from pipeline.complexity.layer_types.attention_functions import make_function
from pipeline.complexity.layer_types.modules import make, make_projected
from pipeline.complexity.layer_types.sizes import ATTENTION_FUNCTIONS, LayerSizes
from pipeline.complexity.measure import SEED, costs, device_of, machine_of, random_input, threads_of
from pipeline.complexity.settings import ArgumentSettings, TimingSettings
from pipeline.store.artifact import Context

Cases = dict[tuple[str, int], tuple[nn.Module, Tensor]]
"""Layers with their inputs, by the name of a sweep and the value there."""


class SelfAttentionBy(nn.Module):
    """An attention function of queries, keys and values that are equal to the input."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, x_BHLK: Tensor) -> Tensor:
        """x_BHLK -> x_BHLK."""
        y_BHLK: Tensor = self.function(x_BHLK, x_BHLK, x_BHLK)
        return y_BHLK


def time_(
    context: Context, counted: CountedArguments, settings: ArgumentSettings, timing: TimingSettings
) -> TimedArguments:
    """Writes times and peak memory. Raises UserError if a GPU is asked for and there is none.

    `counted` is not read: times are measured after the counts are made, so that nothing else computes meanwhile.
    """
    device = device_of(context, timing)
    started_s = time.monotonic()
    torch.manual_seed(SEED)
    with threads_of(timing):
        cases = _cases(settings, timing.batch, device)
        layers = [(layer.to(device), x) for layer, x in cases.values()]
        sweeps: dict[str, dict[int, PassMeasurements]] = {}
        for (sweep, value), (peak, rounds) in zip(cases, costs(context, layers, timing), strict=True):
            measured = PassMeasurements(rounds_s=tuple(map(sum, rounds)), peak_bytes=peak)
            sweeps.setdefault(sweep, {})[value] = measured
        machine = machine_of(device, timing, started_s)
    return TimedArguments(context.folder).write(
        ArgumentTimes(
            recurrent=sweeps["recurrent"][settings.width],
            kernels=sweeps["kernels"],
            windows=sweeps["windows"],
            heads=sweeps["heads"],
            functions={function: sweeps[function] for function in ATTENTION_FUNCTIONS},
            settings=settings,
            **machine.model_dump(),
        )
    )


def _cases(settings: ArgumentSettings, batch: int, device: str) -> Cases:
    d = settings.width
    x_BLD = random_input(batch, settings.length, d, device)
    long_BLD = random_input(batch, settings.window_length, d, device)
    cases: Cases = {("recurrent", d): (make("recurrent", LayerSizes(d)), x_BLD)}
    for k in settings.kernels:
        cases["kernels", k] = make("convolutional", LayerSizes(d, kernel=k)), x_BLD
    for r in settings.windows:
        cases["windows", r] = make("restricted self-attention", LayerSizes(d, window=r)), long_BLD
    for h in settings.heads:
        cases["heads", h] = make_projected("self-attention", LayerSizes(d, n_heads=h)), x_BLD
    n_heads, length = settings.attention_heads, settings.attention_length
    for d_k in settings.attention_d_k:
        x_BHLK = random_input(batch * n_heads, length, d_k, device).view(batch, n_heads, length, d_k)
        for function in ATTENTION_FUNCTIONS:
            cases[function, d_k] = SelfAttentionBy(make_function(function, n_heads, d_k)), x_BHLK
    return cases
