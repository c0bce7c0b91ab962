from collections.abc import Callable

from pipeline.complexity import records
from pipeline.complexity.settings import LAYER_TYPES, LayerSettings, LayerType, SweepSettings, TimingSettings

SETTINGS = LayerSettings(kernel=5, window=8)
SWEEP = SweepSettings(
    lengths=(64, 128, 256, 512), width=32, widths=(16, 32, 64), separable_widths=(64, 128, 256), length=64
)
EXPECTED: dict[LayerType, tuple[int, int]] = {
    "self-attention": (2, 1),
    "recurrent": (1, 2),
    "convolutional": (1, 2),
    "restricted self-attention": (1, 1),
    "separable convolution": (1, 2),
}


def counts() -> records.Counts:

    def layer(name: LayerType) -> records.LayerCounts:
        a, b = EXPECTED[name]
        sizes = [records.SizeCounts(length=n, width=d, counted_flop=1000 * n**a * d**b) for n, d in SWEEP.points(name)]
        return records.LayerCounts(name=name, sizes=sizes)

    return records.Counts(layers=tuple(map(layer, LAYER_TYPES)), settings=SETTINGS, sweep=SWEEP)


def measurements(seconds: Callable[[LayerType, int, int], float]) -> records.Measurements:
    """Three rounds of equal times, one of them disturbed."""

    def layer(name: LayerType) -> records.LayerMeasurements:
        times = {(n, d): seconds(name, n, d) for n, d in SWEEP.points(name)}
        sizes = [records.SizeMeasurements(length=n, width=d, rounds_s=(s, 50.0, s)) for (n, d), s in times.items()]
        return records.LayerMeasurements(name=name, sizes=sizes)

    machine = {"device": "cpu", "device_name": "a machine", "threads": 2, "dtype": "float32", "torch_version": "2.13"}
    return records.Measurements(layers=[*map(layer, LAYER_TYPES)], timing=TimingSettings(), seconds=61.0, **machine)


def theory_s(name: LayerType, n: int, d: int) -> float:
    exponent_n, exponent_d = EXPECTED[name]
    return 1e-9 * n**exponent_n * d**exponent_d
