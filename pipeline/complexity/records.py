"""Records of the counts and measurements of Table 1's layer types."""

from pipeline.complexity.settings import LayerSettings, LayerType, SweepSettings, TimingSettings
from pipeline.records import Record
from pipeline.store.artifact import JsonArtifact


class SizeCounts(Record):
    """FLOP of a forward pass over one sequence of one size, by torch's counter."""

    length: int
    width: int
    counted_flop: int


class LayerCounts(Record):
    """Counts for one layer type."""

    name: LayerType
    sizes: tuple[SizeCounts, ...]


class Counts(Record):
    """`counts.json`: counted costs of the layer types."""

    layers: tuple[LayerCounts, ...]
    settings: LayerSettings
    sweep: SweepSettings


class CountsArtifact(JsonArtifact[Counts]):
    """`counts.json`: FLOP of the layer types."""

    record_file = "counts.json"


class SizeMeasurements(Record):
    """Times of one layer at one size."""

    length: int
    width: int
    rounds_s: tuple[float, ...]
    """Seconds of a forward and backward pass, by round."""


class LayerMeasurements(Record):
    """Measurements of one layer type."""

    name: LayerType
    sizes: tuple[SizeMeasurements, ...]


class Measurements(Record):
    """`measurements.json`: costs of the layer types on one machine."""

    timing: TimingSettings
    device: str
    """torch device type: cpu or cuda."""
    device_name: str
    threads: int
    dtype: str
    torch_version: str
    seconds: float
    """Duration of the measurement."""
    layers: tuple[LayerMeasurements, ...]


class MeasurementsArtifact(JsonArtifact[Measurements]):
    """`measurements.json`: times of the layer types."""

    record_file = "measurements.json"

    @property
    def summary(self) -> str:
        """The device."""
        return self.load().device_name
