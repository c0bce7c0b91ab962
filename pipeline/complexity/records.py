"""What is counted and measured of the layer types of Table 1, as it stands in the store."""

from dataclasses import dataclass
from statistics import median

from pipeline.complexity.layer_types.sizes import AttentionFunction, LayerType
from pipeline.complexity.settings import ArgumentSettings, LayerSettings, PathSettings, SweepSettings, TimingSettings
from pipeline.store.artifact import JsonArtifact
from pipeline.store.records import Record


class SizeCounts(Record):
    """FLOP of a forward pass over one sequence, at one size, by torch's own counter."""

    length: int
    width: int
    counted_flop: int


class LayerCounts(Record):
    """What is counted of one layer type."""

    name: LayerType
    sizes: tuple[SizeCounts, ...]
    projected: tuple[SizeCounts, ...] = ()
    """Of self-attention with its projections."""
    sequential_operations: dict[int, int]
    """Products of which each waits for the one before, by n."""
    longest_path: dict[int, int]
    """Steps until every output depends on every input it can depend on, by n; of convolutions, with dilated kernels."""
    longest_path_contiguous: dict[int, int]
    """The same with contiguous kernels; empty but for convolutions."""


class Counts(Record):
    """`counts.json`: what the layer types cost, counted."""

    layers: tuple[LayerCounts, ...]
    settings: LayerSettings
    sweep: SweepSettings
    paths: PathSettings


@dataclass(frozen=True)
class CountsArtifact(JsonArtifact[Counts]):
    """`counts.json`: FLOP, sequential operations and longest paths of the layer types."""

    record_file = "counts.json"


class MeasuredOn(Record):
    """What measures times, and how."""

    timing: TimingSettings
    device: str
    """torch's name of its kind: cpu or cuda."""
    device_name: str
    threads: int
    dtype: str
    torch_version: str
    seconds: float
    """How long it took to measure."""


class SizeMeasurements(Record):
    """Times of one layer at one size, a figure a round, and its peak memory."""

    length: int
    width: int
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    peak_bytes: int
    """Of a forward and backward pass, beyond input and weights."""


class LayerMeasurements(Record):
    """What is measured of one layer type."""

    name: LayerType
    sizes: tuple[SizeMeasurements, ...]


class CrossoverPoint(Record):
    """Median seconds of a forward and backward pass at one length."""

    length: int
    attention_s: float
    projected_s: float
    """Of self-attention with its projections and heads."""
    recurrent_s: float
    projected_rounds_s: tuple[float, ...] = ()
    """Of each round, like `recurrent_rounds_s`; empty in files of earlier versions, which kept medians only."""
    recurrent_rounds_s: tuple[float, ...] = ()


class Crossover(Record):
    """Self-attention beside recurrence for growing n, at one d."""

    width: int
    batch: int
    points: tuple[CrossoverPoint, ...]


class Measurements(MeasuredOn):
    """`measurements.json`: what the layer types cost on one machine."""

    layers: tuple[LayerMeasurements, ...]
    crossovers: tuple[Crossover, ...]


@dataclass(frozen=True)
class MeasurementsArtifact(JsonArtifact[Measurements]):
    """`measurements.json`: times and memory of the layer types."""

    record_file = "measurements.json"

    @property
    def summary(self) -> str:
        """The device."""
        return self.load().device_name


class PassMeasurements(Record):
    """What forward and backward of one layer cost."""

    rounds_s: tuple[float, ...]
    """Seconds, a figure a round."""
    peak_bytes: int
    """Beyond input and weights."""

    @property
    def median_s(self) -> float:
        """The median of the rounds."""
        return median(self.rounds_s)


class ArgumentTimes(MeasuredOn):
    """`timed_arguments.json`: what the paper argues of layers in words, timed."""

    recurrent: PassMeasurements
    """At the n and d of `kernels`."""
    kernels: dict[int, PassMeasurements]
    """Of the convolution, by k."""
    windows: dict[int, PassMeasurements]
    """Of restricted self-attention, by r."""
    heads: dict[int, PassMeasurements]
    """Of self-attention with its projections, by h, with d_k = d_v = d / h."""
    functions: dict[AttentionFunction, dict[int, PassMeasurements]]
    """Of each attention function of §3.2.1, by d_k = d_v."""
    settings: ArgumentSettings


@dataclass(frozen=True)
class TimedArguments(JsonArtifact[ArgumentTimes]):
    """`timed_arguments.json`: what the paper argues of layers in words, timed."""

    record_file = "timed_arguments.json"

    @property
    def summary(self) -> str:
        """The device."""
        return self.load().device_name
