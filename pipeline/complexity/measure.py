"""Times Table 1's layer types on this machine, one after the other.

Each layer is timed once a round, so that a disturbance does not affect only one layer.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import fmean

import torch
from torch import Tensor, nn

from pipeline.complexity.layers import make
from pipeline.complexity.records import (
    CountsArtifact,
    LayerMeasurements,
    Measurements,
    MeasurementsArtifact,
    SizeMeasurements,
)
from pipeline.complexity.settings import LAYER_TYPES, LayerSettings, SweepSettings, TimingSettings
from pipeline.context import Context
from pipeline.environment import busy_text, usable_cpus
from pipeline.errors import UserError
from pipeline.hardware import device_name, dtype_name

SEED = 1
log = logging.getLogger(__name__)


def measure(
    context: Context, counted: CountsArtifact, settings: LayerSettings, sweep: SweepSettings, timing: TimingSettings
) -> MeasurementsArtifact:
    """Writes times. Raises UserError if a GPU is requested and there is none.

    `counted` is not read; it makes this stage wait for the counts, so that nothing else computes meanwhile.
    """
    if timing.device == "gpu" and not context.device.startswith("cuda"):
        raise UserError("there is no GPU to measure on; choose --profile cpu")
    device = "cpu" if timing.device == "cpu" else context.device
    started_s = time.monotonic()
    torch.manual_seed(SEED)
    with threads_of(timing):
        layers = _sweeps(context, device, settings, sweep, timing)
        if device == "cpu" and (busy := busy_text()):
            log.warning("other programs ran during the measurement (%s), which lengthens times; repeat it alone", busy)
        return MeasurementsArtifact(context.folder).write(
            Measurements(
                layers=tuple(layers),
                timing=timing,
                device=device,
                device_name=device_name(device),
                threads=torch.get_num_threads(),
                dtype=dtype_name(torch.get_default_dtype()),
                torch_version=torch.__version__,
                seconds=time.monotonic() - started_s,
            )
        )


@contextmanager
def threads_of(timing: TimingSettings) -> Iterator[None]:
    """Sets torch's threads as in the settings."""
    threads_before = torch.get_num_threads()
    torch.set_num_threads(timing.threads or usable_cpus())
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)


def _sweeps(
    context: Context, device: str, settings: LayerSettings, sweep: SweepSettings, timing: TimingSettings
) -> list[LayerMeasurements]:
    """Times every layer type at every size."""
    cases = [(layer_type, n, d) for layer_type in LAYER_TYPES for n, d in sweep.points(layer_type)]
    timers = []
    for done, (layer_type, n, d) in enumerate(cases):
        context.progress(done, len(cases), "layers")
        x_BLD = torch.randn(timing.batch, n, d).to(device)  # drawn on the CPU: the same on every device
        timers.append(Timer(make(layer_type, settings, d).to(device), x_BLD, timing.least_s))
    rounds_s = []
    for done in range(timing.rounds):
        context.progress(done, timing.rounds, "rounds")
        rounds_s.append([timer.time() for timer in timers])
    sizes: dict[str, list[SizeMeasurements]] = {name: [] for name in LAYER_TYPES}
    for (name, n, d), of_size_s in zip(cases, zip(*rounds_s, strict=True), strict=True):
        sizes[name].append(SizeMeasurements(length=n, width=d, rounds_s=of_size_s))
    return [LayerMeasurements(name=name, sizes=tuple(sizes[name])) for name in LAYER_TYPES]


class Timer:
    """Times forward and backward passes of a layer. The second, on construction, sets the number of repetitions."""

    def __init__(self, layer: nn.Module, x_BLD: Tensor, least_s: float) -> None:
        self._layer, self._x_BLD = layer, x_BLD.requires_grad_()
        self._ones_BLD = torch.ones_like(x_BLD)
        self._wait: Callable[[], None] = torch.cuda.synchronize if x_BLD.is_cuda else lambda: None
        self._once()  # libraries choose kernels and allocate
        self._repetitions = max(1, round(least_s / self._once()))

    def time(self) -> float:
        """Returns the mean seconds of as many passes as take `least_s`."""
        return fmean(self._once() for _ in range(self._repetitions))

    def _once(self) -> float:
        self._wait()
        started_s = time.perf_counter()
        self._layer(self._x_BLD).backward(self._ones_BLD)
        self._wait()
        seconds = time.perf_counter() - started_s
        # The layers are kept for all rounds; their gradients need not be.
        self._layer.zero_grad(set_to_none=True)
        self._x_BLD.grad = None
        return seconds
