"""Records of the counts and measurements of Table 1's layer types."""

from statistics import median

from pipeline.complexity.layer_types.sizes import AttentionFunction, LayerType
from pipeline.complexity.settings import ArgumentSettings, LayerSettings, PathSettings, SweepSettings, TimingSettings
from pipeline.store.artifact import JsonArtifact
from pipeline.store.records import Record


class SizeCounts(Record):
    """FLOP of a forward pass over one sequence of one size, by torch's counter."""

    length: int
    width: int
    counted_flop: int


class LayerCounts(Record):
    """Counts for one layer type."""

    name: LayerType
    sizes: tuple[SizeCounts, ...]
    projected: tuple[SizeCounts, ...] = ()
    """For self-attention with its projections."""
    sequential_operations: dict[int, int]
    """Longest chain of products by n."""
    longest_path: dict[int, int]
    """Steps until every output depends on all inputs that it can, by n; for convolutions, with dilated kernels."""
    longest_path_contiguous: dict[int, int]
    """The same with contiguous kernels; empty except for convolutions."""


class Counts(Record):
    """`counts.json`: counted costs of the layer types."""

    layers: tuple[LayerCounts, ...]
    settings: LayerSettings
    sweep: SweepSettings
    paths: PathSettings


class CountsArtifact(JsonArtifact[Counts]):
    """`counts.json`: FLOP, sequential operations and longest paths of the layer types."""

    record_file = "counts.json"


class MeasuredOn(Record):
    """The machine and method of a measurement."""

    timing: TimingSettings
    device: str
    """torch device type: cpu or cuda."""
    device_name: str
    threads: int
    dtype: str
    torch_version: str
    seconds: float
    """Duration of the measurement."""


class SizeMeasurements(Record):
    """Times of one layer at one size, by round, and its peak memory."""

    length: int
    width: int
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    peak_bytes: int
    """Of a forward and backward pass, excluding input and weights."""


class LayerMeasurements(Record):
    """Measurements of one layer type."""

    name: LayerType
    sizes: tuple[SizeMeasurements, ...]


class CrossoverPoint(Record):
    """Median seconds of a forward and backward pass at one length."""

    length: int
    attention_s: float
    projected_s: float
    """For self-attention with its projections and heads."""
    recurrent_s: float
    projected_rounds_s: tuple[float, ...] = ()
    """By round, like `recurrent_rounds_s`; empty in older files, which have only medians."""
    recurrent_rounds_s: tuple[float, ...] = ()


class Crossover(Record):
    """Self-attention and recurrence for growing n, at one d."""

    width: int
    batch: int
    points: tuple[CrossoverPoint, ...]


class Measurements(MeasuredOn):
    """`measurements.json`: costs of the layer types on one machine."""

    layers: tuple[LayerMeasurements, ...]
    crossovers: tuple[Crossover, ...]


class MeasurementsArtifact(JsonArtifact[Measurements]):
    """`measurements.json`: times and memory of the layer types."""

    record_file = "measurements.json"

    @property
    def summary(self) -> str:
        """The device."""
        return self.load().device_name


class PassMeasurements(Record):
    """Cost of one layer's forward and backward pass."""

    rounds_s: tuple[float, ...]
    """Seconds by round."""
    peak_bytes: int
    """Excluding input and weights."""

    @property
    def median_s(self) -> float:
        """The median of the rounds."""
        return median(self.rounds_s)


class ArgumentTimes(MeasuredOn):
    """`timed_arguments.json`: timings for the paper's verbal claims about layers."""

    recurrent: PassMeasurements
    """At the n and d of `kernels`."""
    kernels: dict[int, PassMeasurements]
    """Convolutions by k."""
    windows: dict[int, PassMeasurements]
    """Restricted self-attention by r."""
    heads: dict[int, PassMeasurements]
    """Projected self-attention by h, with d_k = d_v = d / h."""
    functions: dict[AttentionFunction, dict[int, PassMeasurements]]
    """§3.2.1's attention functions by d_k = d_v."""
    settings: ArgumentSettings


class TimedArguments(JsonArtifact[ArgumentTimes]):
    """`timed_arguments.json`: timings for the paper's verbal claims about layers."""

    record_file = "timed_arguments.json"

    @property
    def summary(self) -> str:
        """The device."""
        return self.load().device_name
