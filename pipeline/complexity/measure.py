"""Measures time and memory of Table 1's layer types on this machine, one after the other.

Times are measured in rounds, each layer once per round, so that a disturbance does not affect only one layer. Memory is
the peak of a forward and backward pass, in bytes of tensors from torch's allocator: gradients count, the input and
weights, which exist before, do not. On a GPU the allocator records the peak. On a CPU it is the peak of the running sum
of the profiler's allocations, which excludes memory that libraries such as oneDNN allocate themselves.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from pipeline.complexity.layer_types.modules import make, make_projected
from pipeline.complexity.layer_types.sizes import LAYER_TYPES
from pipeline.complexity.records import (
    CountsArtifact,
    Crossover,
    CrossoverPoint,
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
FIRST_LENGTH = 32
"""Length at which the search for a crossover starts."""
CROSSOVER_ROUNDS = 3


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
        compared = [(width, batch) for batch in timing.crossover_batches for width in timing.crossover_widths]
        crossovers = []
        for done, (width, batch) in enumerate(compared):
            context.progress(done, len(compared), "crossovers")
            crossovers.append(_crossover(device, settings, timing, width, batch))
        return MeasurementsArtifact(context.folder).write(
            Measurements(
                layers=tuple(layers),
                crossovers=tuple(crossovers),
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
    for (name, n, d), (peak, rounds) in zip(cases, costs(context, layers, timing), strict=True):
        forward_s, backward_s = zip(*rounds, strict=True)
        sizes[name].append(
            SizeMeasurements(length=n, width=d, forward_s=forward_s, backward_s=backward_s, peak_bytes=peak)
        )
    return [LayerMeasurements(name=name, sizes=tuple(sizes[name])) for name in LAYER_TYPES]


def _crossover(device: str, settings: LayerSettings, timing: TimingSettings, width: int, batch: int) -> Crossover:
    """Times self-attention and recurrence for growing n, until self-attention is slower in both its forms.

    At small n it may be slower as well, since it launches more operations.
    """
    layers: list[nn.Module] = [
        make("self-attention", settings.sizes(width)),
        make_projected("self-attention", settings.sizes(width)),
        make("recurrent", settings.sizes(width)),
    ]
    layers = [layer.to(device) for layer in layers]
    points: list[CrossoverPoint] = []
    for length in lengths(FIRST_LENGTH, timing.crossover_length):
        attention_s, projected_s, recurrent_s = _medians_s(
            layers, random_input(batch, length, width, device), timing.least_s
        )
        last = CrossoverPoint(length=length, attention_s=attention_s, projected_s=projected_s, recurrent_s=recurrent_s)
        points.append(last)
        has_been_faster = any(point.attention_s < point.recurrent_s for point in points)
        if has_been_faster and min(attention_s, projected_s) > recurrent_s:
            break
    return Crossover(width=width, batch=batch, points=tuple(points))


def lengths(first: int, last: int) -> list[int]:
    """Returns lengths from `first` to at most `last`, two per octave."""
    lengths = []
    while first <= last:
        lengths += [length for length in (first, first * 3 // 2) if length <= last]
        first *= 2
    return lengths


def _medians_s(layers: Sequence[nn.Module], x_BLD: Tensor, least_s: float) -> list[float]:
    """Returns each layer's median seconds per forward and backward pass, over interleaved rounds."""
    timers = [Timer(layer, x_BLD, least_s) for layer in layers]
    return [*map(median, zip(*([sum(timer.time()) for timer in timers] for _ in range(CROSSOVER_ROUNDS)), strict=True))]


def random_input(batch: int, length: int, width: int, device: str) -> Tensor:
    """Draws x_BLD on the CPU, so that it is the same on every device."""
    return torch.randn(batch, length, width).to(device)


class PassTimes(NamedTuple):
    """Seconds of one pass, averaged over consecutive repetitions."""

    forward_s: float
    backward_s: float


class Timer:
    """Times passes of a layer. A first pass, on construction, determines the number of repetitions."""

    def __init__(self, layer: nn.Module, x_BLD: Tensor, least_s: float) -> None:
        self._layer, self._x_BLD = layer, x_BLD.detach().requires_grad_()
        self._ones_BLD = torch.ones_like(x_BLD)
        self._wait: Callable[[], None] = torch.cuda.synchronize if x_BLD.is_cuda else lambda: None
        first = self._once()
        self._repetitions = max(1, round(least_s / (first.forward_s + first.backward_s)))

    def time(self) -> PassTimes:
        """Returns mean times of as many passes as take `least_s`."""
        passes = [self._once() for _ in range(self._repetitions)]
        return PassTimes(*(sum(times) / len(passes) for times in zip(*passes, strict=True)))

    def _once(self) -> PassTimes:
        self._wait()
        started_s = time.perf_counter()
        y_BLD = self._layer(self._x_BLD)
        self._wait()
        between_s = time.perf_counter()
        y_BLD.backward(self._ones_BLD)
        self._wait()
        times = PassTimes(between_s - started_s, time.perf_counter() - between_s)
        # The layers are kept for all rounds; their gradients need not be.
        self._layer.zero_grad(set_to_none=True)
        self._x_BLD.grad = None
        return times


def costs(
    context: Context, layers: Sequence[tuple[nn.Module, Tensor]], timing: TimingSettings
) -> list[tuple[int, tuple[PassTimes, ...]]]:
    """Measures layers, each with its input: peak bytes, and the times of each round."""
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
