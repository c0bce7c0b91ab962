from collections.abc import Callable

from pipeline.complexity.records import (
    Counts,
    LayerCounts,
    LayerMeasurements,
    Measurements,
    SizeCounts,
    SizeMeasurements,
)
from pipeline.complexity.settings import (
    LAYER_TYPES,
    LayerSettings,
    LayerType,
    PathSettings,
    SweepSettings,
    TimingSettings,
)

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


def counts() -> Counts:
    """Counts by formula, with paths of one step for three positions and two for six."""

    def size(flop: int, n: int, d: int) -> SizeCounts:
        return SizeCounts(length=n, width=d, counted_flop=flop)

    def layer(name: LayerType) -> LayerCounts:
        points = SWEEP.points(name)
        return LayerCounts(
            name=name,
            sizes=tuple(size(1000 * n ** EXPECTED[name][0] * d ** EXPECTED[name][1], n, d) for n, d in points),
            sequential_operations={3: 1, 6: 1},
            longest_path={6: 2, 3: 1},
            longest_path_contiguous={3: 1, 6: 4} if "convolution" in name else {},
        )

    layers = tuple(map(layer, LAYER_TYPES))
    return Counts(layers=layers, settings=SETTINGS, sweep=SWEEP, paths=PathSettings(lengths=(3, 6)))


def measurements(seconds: Callable[[LayerType, int, int], float]) -> Measurements:
    """Three rounds of equal times, one of them disturbed."""

    def layer(name: LayerType) -> LayerMeasurements:
        return LayerMeasurements(
            name=name,
            sizes=tuple(
                SizeMeasurements(length=n, width=d, rounds_s=(seconds(name, n, d), 50.0, seconds(name, n, d)))
                for n, d in SWEEP.points(name)
            ),
        )

    return Measurements(
        layers=tuple(map(layer, LAYER_TYPES)),
        timing=TimingSettings(),
        device="cpu",
        device_name="a machine",
        threads=2,
        dtype="float32",
        torch_version="2.13",
        seconds=61.0,
    )


def theory_s(name: LayerType, n: int, d: int) -> float:
    exponent_n, exponent_d = EXPECTED[name]
    return 1e-9 * n**exponent_n * d**exponent_d
