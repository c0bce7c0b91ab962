"""Computes Table 1 (paper §4): each layer type's exponents of n and d, fitted, beside the paper's O(·)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from pipeline.complexity.exponents import Exponent, crossing, fit
from pipeline.complexity.figures import (
    Counts,
    Crossover,
    LayerCounts,
    LayerMeasurements,
    Measurements,
    SizeCounts,
    SizeMeasurements,
)
from pipeline.complexity.layer_types.sizes import LayerType
from pipeline.complexity.settings import SweepSettings
from pipeline.store.artifact import JsonArtifact
from workflows import paper
from workflows.quantities import duration
from workflows.tables.differences import Difference
from workflows.tables.table import NAME, Column, Table, columns, in_order

TOLERANCE = 0.15
"""How far from the theory a fitted exponent may be without a note that names it."""
Quantity = Literal["flop", "time", "forward", "backward", "memory"]
"""What is fitted: FLOP of a forward pass, the time of forward and backward, of either, and peak memory."""
Variable = Literal["n", "d"]
VARIABLES: tuple[Variable, ...] = ("n", "d")
QUANTITY_NAMES: dict[Quantity, str] = {
    "flop": "FLOP",
    "time": "time",
    "forward": "time, forward",
    "backward": "time, backward",
    "memory": "peak memory",
}


@dataclass(frozen=True)
class Size:
    """What one layer costs at one size: medians over the rounds."""

    n: int
    d: int
    flop: int
    """Of a forward pass, as torch counts them."""
    forward_s: float
    backward_s: float
    peak_bytes: int

    @property
    def time_s(self) -> float:
        """Forward and backward."""
        return self.forward_s + self.backward_s


QUANTITIES: dict[Quantity, Callable[[Size], float]] = {
    "flop": lambda size: size.flop,
    "time": lambda size: size.time_s,
    "forward": lambda size: size.forward_s,
    "backward": lambda size: size.backward_s,
    "memory": lambda size: size.peak_bytes,
}


@dataclass(frozen=True)
class Layer:
    """A row of Table 1."""

    printed: paper.LayerComplexity
    """Without counts of steps where the paper prints nothing."""
    fits: Mapping[Quantity, Mapping[Variable, Exponent]]
    """All fitted exponents, with the ends of their confidence intervals."""
    projected: Mapping[Variable, Exponent]
    """Exponents of the FLOP of self-attention with its projections; empty for the other types."""
    sequential_by_n: Mapping[int, int]
    path_by_n: Mapping[int, int]
    contiguous_path_by_n: Mapping[int, int]
    """Through contiguous kernels, where `path_by_n` is through dilated ones; only of convolutions."""
    over_n: list[Size]
    over_d: list[Size]

    @property
    def name(self) -> LayerType:
        """The layer type."""
        return self.printed.name

    @property
    def expected(self) -> dict[Variable, int]:
        """The exponents of the paper's complexity."""
        return {"n": self.printed.exponent_n, "d": self.printed.exponent_d}

    @property
    def counted_n(self) -> int:
        """The longest sequence whose steps were counted, like `sequential_operations` and `longest_path`."""
        return max(self.path_by_n)

    @property
    def sequential_operations(self) -> int:
        """Products in sequence."""
        return self.sequential_by_n[self.counted_n]

    @property
    def longest_path(self) -> int:
        """The longest path between two positions, in layers of a stack or time steps."""
        return self.path_by_n[self.counted_n]


@dataclass(frozen=True)
class CrossoverRow:
    """The length at which self-attention becomes slower than recurrence, at one width."""

    d: int
    batch: int
    n: float | None
    """By measured time; None where it does not become slower at any length measured."""
    n_projected: float | None
    """Of self-attention with its projections and heads."""
    longest_n: int
    """The longest n measured."""
    is_slower: bool
    """Whether it is the slower there, like `is_slower_projected`; without a crossover, it is at every length."""
    is_slower_projected: bool


@dataclass(frozen=True)
class Table1:
    """The table with everything that stands beneath it."""

    layers: list[Layer]
    crossovers: list[CrossoverRow]
    device_name: str
    differences: list[Difference]
    notes: list[str]

    @property
    def metrics(self) -> dict[str, float]:
        """The exponents, crossovers and times of the table, by their names in MLflow."""
        figures: dict[str, float] = {}
        for layer in self.layers:
            for quantity, exponents in layer.fits.items():
                figures |= {
                    f"exponent_{name}.{quantity}.{layer.name}": fitted.value for name, fitted in exponents.items()
                }
            figures[f"sequential_operations.{layer.name}"] = layer.sequential_operations
            figures[f"longest_path.{layer.name}"] = layer.longest_path
            figures |= {
                f"time_s.{layer.name}.n_{size.n}.d_{size.d}": size.time_s for size in [*layer.over_n, *layer.over_d]
            }
        figures |= {f"crossover_n.d_{row.d}.batch_{row.batch}": row.n for row in self.crossovers if row.n is not None}
        return figures

    @property
    def tables(self) -> list[Table]:
        """The exponents and counts of each layer type; then crossovers, all counts and all exponents."""
        counted = "paper", f"n = {self.layers[0].counted_n}"
        name = Column(NAME, "layer type")
        shown = [
            name,
            *columns("per layer"),
            *columns("paper", "FLOP", "time", block="exponent of n", spec="g"),
            *columns("paper", "FLOP", "time", block="exponent of d", spec="g"),
            *columns(*counted, block="in sequence", spec="g"),
            *columns(*counted, block="longest path", spec="g"),
        ]
        main = Table("Table 1", shown, [in_order(shown, *_exponents_and_counts(layer)) for layer in self.layers])
        shown = [name, *columns("n", "in sequence", "longest path", "through contiguous kernels")]
        counts = Table(
            "All counts", shown, [in_order(shown, *_counts(layer)) for layer in self.layers], on_terminal=False
        )
        shown = [name, *columns("of"), *columns("n", "d", spec="g")]
        fitted = [in_order(shown, layer.name, *texts) for layer in self.layers for texts in _exponents(layer)]
        exponents = Table("All exponents, with 95 % confidence", shown, fitted, on_terminal=False)
        return [main, *[_crossovers(self.crossovers)] * bool(self.crossovers), counts, exponents]


class Table1Artifact(JsonArtifact[Table1]):
    """`table1.json`, `table1.md` and `report.html`."""

    figures_file = "table1.json"


def compute(counts: Counts, measured: Measurements) -> Table1:
    """Computes the table."""
    by_name = {layer.name: layer for layer in measured.layers}
    printed = {row.name: row for row in (*paper.TABLE_1, paper.SEPARABLE)}
    layers = [_layer(printed[layer.name], layer, by_name[layer.name], counts.sweep) for layer in counts.layers]
    crossovers = [_crossover(crossover) for crossover in measured.crossovers]
    return Table1(
        layers,
        crossovers,
        measured.device_name,
        _differences(counts),
        _notes(counts, measured, layers),
    )


def _layer(
    printed: paper.LayerComplexity, counted: LayerCounts, measured: LayerMeasurements, sweep: SweepSettings
) -> Layer:
    counts = {(size.length, size.width): size for size in counted.sizes}
    sizes = {(size.length, size.width): _size(counts[size.length, size.width], size) for size in measured.sizes}
    over_n = [sizes[point] for point in sweep.over_n()]
    over_d = [sizes[point] for point in sweep.over_d(counted.name)]
    fits: dict[Quantity, dict[Variable, Exponent]] = {
        quantity: {
            "n": fit([(size.n, value(size)) for size in over_n]),
            "d": fit([(size.d, value(size)) for size in over_d]),
        }
        for quantity, value in QUANTITIES.items()
    }
    return Layer(
        printed,
        fits,
        projected=_projected(counted, sweep),
        sequential_by_n=counted.sequential_operations,
        path_by_n=counted.longest_path,
        contiguous_path_by_n=counted.longest_path_contiguous,
        over_n=over_n,
        over_d=over_d,
    )


def _size(counted: SizeCounts, measured: SizeMeasurements) -> Size:
    return Size(
        n=counted.length,
        d=counted.width,
        flop=counted.counted_flop,
        forward_s=median(measured.forward_s),
        backward_s=median(measured.backward_s),
        peak_bytes=measured.peak_bytes,
    )


def _projected(counted: LayerCounts, sweep: SweepSettings) -> dict[Variable, Exponent]:
    if not counted.projected:
        return {}
    flop = {(size.length, size.width): size.counted_flop for size in counted.projected}
    return {
        "n": fit([(n, flop[n, d]) for n, d in sweep.over_n()]),
        "d": fit([(d, flop[n, d]) for n, d in sweep.over_d(counted.name)]),
    }


def _crossover(measured: Crossover) -> CrossoverRow:
    points = measured.points
    return CrossoverRow(
        measured.width,
        measured.batch,
        crossing([(point.length, point.attention_s, point.recurrent_s) for point in points]),
        crossing([(point.length, point.projected_s, point.recurrent_s) for point in points]),
        points[-1].length,
        points[-1].attention_s > points[-1].recurrent_s,
        points[-1].projected_s > points[-1].recurrent_s,
    )


def _differences(counts: Counts) -> list[Difference]:
    settings = counts.settings
    attention = ("self-attention", "restricted self-attention")
    convolutions = ("convolutional", "separable convolution")
    return [
        Difference(
            "what counts as a layer",
            "O(·) of only the attention function, without the projections of queries, keys, values and output",
            f"the same, in one head; with projections and {settings.n_heads} heads beneath the table",
            attention,
        ),
        Difference("size of the neighbourhood", "r, without a value", f"r = {settings.window}", attention[1:]),
        Difference("size of the kernel", "k, without a value", f"k = {settings.kernel}, centred", convolutions),
        Difference("kind of recurrence", "not said", "h_t = tanh(W x_t + U h_t-1 + b), torch.nn.RNN", ("recurrent",)),
        Difference(
            "longest path through convolutions",
            "log_k(n), dilated kernels",
            f"dilated by {settings.kernel // 2 + 1} from layer to layer, since a centred kernel sees "
            f"{settings.kernel // 2} positions to each side",
            convolutions,
        ),
    ]


def _notes(counts: Counts, measured: Measurements, layers: Sequence[Layer]) -> list[str]:
    sweep = counts.sweep
    lengths, widths, separable = (
        ", ".join(map(str, sorted(set(sizes)))) for sizes in (sweep.lengths, sweep.widths, sweep.separable_widths)
    )
    notes = [
        f"Exponents are slopes of a line through the logarithms, with 95 % confidence: of n over n = {lengths} "
        f"at d = {sweep.width}, of d over d = {widths} at n = {sweep.length}; "
        f"of the separable convolution over d = {separable}, where its second term leads by time, too.",
        "FLOP are those of the matrix products and convolutions of a forward pass over one sequence, counted by "
        "torch.utils.flop_counter; a backward pass takes two products for each of them.",
        "Time is that of a forward and backward pass over "
        f"{'one sequence' if measured.timing.batch == 1 else f'{measured.timing.batch} sequences'}: the median of "
        f"{measured.timing.rounds} rounds, in each of which every layer is timed at every size.",
        "Peak memory is that of torch's allocator beyond input and weights: what is kept for the backward pass, and "
        "gradients.",
        "Sequential operations are the matrix products and convolutions of which each waits for the one before; the "
        "longest path is the number of steps until every output has a gradient with respect to every input it can "
        f"depend on. Both are counted, here at n = {layers[0].counted_n}. A step is a layer of a stack, and of the "
        "recurrent layer a time step.",
        f"Measured on {measured.device_name}, {measured.threads} thread{'s' * (measured.threads > 1)}, "
        f"{measured.dtype}, torch {measured.torch_version}, in {duration(measured.seconds)}.",
    ]
    far = [line for layer in layers for line in _far(layer)]
    if far:
        notes.append(f"More than {TOLERANCE} from the theory: {'; '.join(far)}.")
    else:
        notes.append(f"Every exponent of FLOP and of time is within {TOLERANCE} of the theory.")
    return notes


def _far(layer: Layer) -> list[str]:
    quantities: tuple[Quantity, ...] = ("flop", "time")
    return [
        f"{layer.name}, {QUANTITY_NAMES[quantity]} over {name} "
        f"({layer.fits[quantity][name].value:.2f} instead of {layer.expected[name]})"
        for quantity in quantities
        for name in VARIABLES
        if abs(layer.fits[quantity][name].value - layer.expected[name]) > TOLERANCE
    ]


def _exponents_and_counts(layer: Layer) -> list[str]:
    exponents = [
        text
        for name in VARIABLES
        for text in (
            str(layer.expected[name]),
            f"{layer.fits['flop'][name].value:.2f}",
            _interval(layer.fits["time"][name]),
        )
    ]
    printed = layer.printed
    counts = [printed.sequential, str(layer.sequential_operations), printed.path, str(layer.longest_path)]
    return [layer.name, printed.complexity, *exponents, *counts]


def _interval(fitted: Exponent) -> str:
    """Returns an exponent with half its confidence interval, e.g. `1.97 ± 0.04`."""
    return f"{fitted.value:.2f} ± {(fitted.high - fitted.low) / 2:.2f}"


def _counts(layer: Layer) -> list[str]:
    by_n = layer.sequential_by_n, layer.path_by_n, layer.contiguous_path_by_n
    counted = [", ".join(str(steps[n]) for n in sorted(steps)) for steps in by_n]
    return [layer.name, ", ".join(map(str, sorted(layer.path_by_n))), *counted]


def _exponents(layer: Layer) -> list[list[str]]:
    fits = {QUANTITY_NAMES[quantity]: fitted for quantity, fitted in layer.fits.items()}
    if layer.projected:
        fits["FLOP with projections"] = layer.projected
    return [[of, *(_interval(fitted[name]) for name in VARIABLES)] for of, fitted in fits.items()]


def _crossovers(rows: Sequence[CrossoverRow]) -> Table:
    shown = [Column(NAME, "d", spec="d"), *columns("sequences", "slower from n", "with projections", spec="d")]
    lines = [
        in_order(
            shown,
            f"{row.d}",
            row.batch,
            _crossover_text(row.n, row.is_slower, row.longest_n),
            _crossover_text(row.n_projected, row.is_slower_projected, row.longest_n),
        )
        for row in rows
    ]
    return Table(
        "Where self-attention becomes slower than recurrence",
        shown,
        lines,
        "By counted operations of the two, that is at n = d. By time it is where the curves cross: a recurrent layer "
        "computes its positions one after the other, whatever the device could do at once.",
    )


def _crossover_text(n: float | None, is_slower: bool, longest_n: int) -> str:
    if n is None:
        return "at every n" if is_slower else f"not up to {longest_n}"
    return f"{n:.0f}"
