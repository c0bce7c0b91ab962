"""Measures time and memory of Table 1's layer types on this machine, one after the other.

Times are measured in rounds, each layer once per round, so that a disturbance does not affect only one layer. Memory is
the peak of a forward and backward pass, in bytes of tensors from torch's allocator: gradients count, the input and
weights, which exist before, do not. On a GPU the allocator records the peak. On a CPU it is the peak of the running sum
of the profiler's allocations, which excludes memory that libraries such as oneDNN allocate themselves.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from pipeline.complexity.layer_types.modules import make
from pipeline.complexity.layer_types.sizes import LAYER_TYPES
from pipeline.complexity.records import (
    CountsArtifact,
    LayerMeasurements,
    Measurements,
    MeasurementsArtifact,
    SizeMeasurements,
)
from pipeline.complexity.settings import LayerSettings, SweepSettings, TimingSettings
from pipeline.environment import usable_cpus
from pipeline.errors import UserError
from pipeline.hardware import device_name, dtype_name
from pipeline.store.artifact import Context

SEED = 1


def measure(
    context: Context,
    counted: CountsArtifact,
    settings: LayerSettings,
    sweep: SweepSettings,
    timing: TimingSettings,
) -> MeasurementsArtifact:
    """Writes times and peak memory. Raises UserError if a GPU is requested and there is none.

    `counted` is not read; it makes this stage wait for the counts, so that nothing else computes meanwhile.
    """
    device = device_of(context, timing)
    started_s = time.monotonic()
    torch.manual_seed(SEED)
    with threads_of(timing):
        layers = _sweeps(context, device, settings, sweep, timing)
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


def device_of(context: Context, timing: TimingSettings) -> str:
    """Returns the device to measure on. Raises UserError if a GPU is requested and none is reserved."""
    if timing.device == "gpu" and not context.device.startswith("cuda"):
        raise UserError("there is no GPU to measure on; choose --profile cpu")
    return "cpu" if timing.device == "cpu" else context.device


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
    """Measures every layer type at every size."""
    cases = [(layer_type, n, d) for layer_type in LAYER_TYPES for n, d in sweep.points(layer_type)]
    layers = [
        (make(layer_type, settings.sizes(d)).to(device), random_input(timing.batch, n, d, device))
        for layer_type, n, d in cases
    ]
    sizes: dict[str, list[SizeMeasurements]] = {name: [] for name in LAYER_TYPES}
    for (name, n, d), (peak, rounds_s) in zip(cases, costs(context, layers, timing), strict=True):
        sizes[name].append(SizeMeasurements(length=n, width=d, rounds_s=rounds_s, peak_bytes=peak))
    return [LayerMeasurements(name=name, sizes=tuple(sizes[name])) for name in LAYER_TYPES]


def random_input(batch: int, length: int, width: int, device: str) -> Tensor:
    """Draws x_BLD on the CPU, so that it is the same on every device."""
    return torch.randn(batch, length, width).to(device)


class Timer:
    """Times forward and backward passes of a layer. The first, on construction, sets the number of repetitions."""

    def __init__(self, layer: nn.Module, x_BLD: Tensor, least_s: float) -> None:
        self._layer, self._x_BLD = layer, x_BLD.detach().requires_grad_()
        self._ones_BLD = torch.ones_like(x_BLD)
        self._wait: Callable[[], None] = torch.cuda.synchronize if x_BLD.is_cuda else lambda: None
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


def costs(
    context: Context, layers: Sequence[tuple[nn.Module, Tensor]], timing: TimingSettings
) -> list[tuple[int, tuple[float, ...]]]:
    """Measures layers, each with its input: peak bytes, and the seconds of each round."""
    timers, peaks_bytes = [], []
    for done, (layer, x) in enumerate(layers):
        context.progress(done, len(layers), "layers")
        # Memory first: in the first pass, libraries choose kernels and allocate, which should not be timed.
        peaks_bytes.append(peak_bytes(layer, x.requires_grad_()))
        timers.append(Timer(layer, x, timing.least_s))
    rounds = []
    for done in range(timing.rounds):
        context.progress(done, timing.rounds, "rounds")
        rounds.append([timer.time() for timer in timers])
    return list(zip(peaks_bytes, zip(*rounds, strict=True), strict=True))


def peak_bytes(layer: nn.Module, x_BLD: Tensor) -> int:
    """Returns the peak number of bytes in use during a pass, above those in use before."""
    _forget_gradients(layer, x_BLD)
    if x_BLD.device.type == "cuda":
        torch.cuda.synchronize(x_BLD.device)
        torch.cuda.reset_peak_memory_stats(x_BLD.device)
        before_bytes = torch.cuda.memory_allocated(x_BLD.device)
        _pass(layer, x_BLD)
        peak = torch.cuda.max_memory_allocated(x_BLD.device) - before_bytes
        _forget_gradients(layer, x_BLD)
        return peak
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        _pass(layer, x_BLD)
    _forget_gradients(layer, x_BLD)
    results = profiler.profiler
    assert results is not None
    events = results.kineto_results.events()
    changes_bytes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    peak = held = 0
    for _, change in changes_bytes:
        held += change
        peak = max(peak, held)
    return peak


def _forget_gradients(layer: nn.Module, x_BLD: Tensor) -> None:
    layer.zero_grad(set_to_none=True)
    x_BLD.grad = None


def _pass(layer: nn.Module, x_BLD: Tensor) -> None:
    y_BLD = layer(x_BLD)
    y_BLD.backward(torch.ones_like(y_BLD))
