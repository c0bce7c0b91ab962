"""Table 1 (paper §4) and its page: each layer type's fitted exponents of n and d beside the paper's O(·)."""

from collections.abc import Mapping
from statistics import median
from typing import Literal

from markupsafe import Markup

from pipeline.complexity.exponents import Exponent, crossing, fit
from pipeline.complexity.records import Counts, CountsArtifact, LayerCounts, Measurements, MeasurementsArtifact
from pipeline.complexity.settings import LayerType
from pipeline.context import Context
from workflows import paper
from workflows.command_line import UNKNOWN, CommandLine
from workflows.quantities import duration
from workflows.tables import page
from workflows.tables.plots import Curve, curves
from workflows.tables.table import NAME, Column, Difference, Results, ResultsArtifact, Row, Table, Value

TOLERANCE = 0.15
"""A note lists exponents farther than this from the theory."""
Quantity = Literal["flop", "time"]
"""The fitted quantities: FLOP of a forward pass, and time of a forward and backward pass."""
Variable = Literal["n", "d"]
VARIABLES: tuple[Variable, ...] = ("n", "d")
QUANTITIES: tuple[Quantity, ...] = ("flop", "time")
PLOTTED: dict[Quantity, tuple[str, float]] = {"time": ("time, ms", 1e3), "flop": ("counted FLOP, G", 1e-9)}
"""The plotted quantities: title and factor to the unit."""
PRINTED = {row.name: row for row in (*paper.TABLE_1, paper.SEPARABLE)}
NAMES = Column(NAME, "layer type")
Sizes = Mapping[LayerType, Mapping[tuple[int, int], Mapping[Quantity, float]]]
"""A layer's cost at n and d: FLOP counted by torch; seconds as medians over rounds."""
Fits = Mapping[LayerType, Mapping[Quantity, Mapping[Variable, Exponent]]]


class Table1Artifact(ResultsArtifact):
    """`table1.json`, `table1.md` and `report.html`."""

    record_file = "table1.json"


def tabulate(
    context: Context, counted: CountsArtifact, measured: MeasurementsArtifact, command: CommandLine = UNKNOWN
) -> Table1Artifact:
    """Writes Table 1 from the layer types' counts and measurements."""
    counts, measurements = counted.load(), measured.load()
    sizes = sizes_of(counts, measurements)
    drawings = [_plot(counts, sizes, quantity, variable) for quantity in PLOTTED for variable in VARIABLES]
    explanation = "Time covers forward and backward, FLOP only forward. Axes are logarithmic: a slope is an exponent."
    return page.write(
        context,
        Table1Artifact,
        compute(counts, measurements),
        lead="Five layer types over a sequence of length n and width d: the paper’s complexities beside the exponents "
        f"counted and measured on {measurements.device_name}.",
        sections=[page.Section("Cost over n and d", explanation, drawings)],
        command=command,
    )


def sizes_of(counts: Counts, measured: Measurements) -> Sizes:
    """Returns the cost of each layer type at each size."""
    flop = {(layer.name, size.length, size.width): size.counted_flop for layer in counts.layers for size in layer.sizes}
    sizes: dict[LayerType, dict[tuple[int, int], dict[Quantity, float]]] = {layer.name: {} for layer in counts.layers}
    for layer in measured.layers:
        for size in layer.sizes:
            sizes[layer.name][size.length, size.width] = {
                "flop": flop[layer.name, size.length, size.width],
                "time": median(size.rounds_s),
            }
    return sizes


def sweeps(counts: Counts, layer: LayerType) -> dict[Variable, list[tuple[int, int]]]:
    """Returns the sizes (n, d) of each variable's sweep for a layer type."""
    return {"n": counts.sweep.over_n(), "d": counts.sweep.over_d(layer)}


def compute(counts: Counts, measured: Measurements) -> Results:
    """Computes the table: exponents per layer type, beside the paper's complexities."""
    sizes = sizes_of(counts, measured)
    fits: Fits = {
        layer: {
            quantity: _fitted(counts, layer, {point: costs[quantity] for point, costs in of_layer.items()})
            for quantity in QUANTITIES
        }
        for layer, of_layer in sizes.items()
    }
    columns = [NAMES, Column("complexity", "per layer")]
    for name in VARIABLES:
        block = f"exponent of {name}"
        columns += [
            Column(f"{name}.paper", "paper", block, "d"),
            Column(f"{name}.flop", "FLOP", block, ".2f"),
            Column(f"{name}.time", "time", block, ".2f", spread=f"{name}.time.confidence"),
        ]
    columns += [Column("sequential.paper", "paper", "in sequence"), Column("path.paper", "paper", "longest path")]
    table = Table("Table 1", columns, [_row(layer, fits) for layer in counts.layers])
    notes, metrics = _notes(counts, measured, sizes, fits), _metrics(counts, sizes, fits)
    return Results([table], _differences(counts), notes, metrics)


def _fitted(counts: Counts, layer: LayerType, costs: Mapping[tuple[int, int], float]) -> dict[Variable, Exponent]:
    over = sweeps(counts, layer)
    return {"n": fit([(n, costs[n, d]) for n, d in over["n"]]), "d": fit([(d, costs[n, d]) for n, d in over["d"]])}


def _expected(layer: LayerType) -> dict[Variable, int]:
    """Returns the exponents of the paper's complexity."""
    return {"n": PRINTED[layer].exponent_n, "d": PRINTED[layer].exponent_d}


def _row(layer: LayerCounts, fits: Fits) -> Row:
    printed, fitted = PRINTED[layer.name], fits[layer.name]
    values: dict[str, Value] = {"complexity": printed.complexity}
    for name, expected in _expected(layer.name).items():
        values[f"{name}.paper"] = expected
        values[f"{name}.flop"] = fitted["flop"][name].value
        values[f"{name}.time"] = fitted["time"][name].value
        values[f"{name}.time.confidence"] = fitted["time"][name].margin
    return Row(layer.name, "", values | {"sequential.paper": printed.sequential, "path.paper": printed.path})


def _metrics(counts: Counts, sizes: Sizes, fits: Fits) -> dict[str, float]:
    """Returns exponents and times."""
    metrics: dict[str, float] = {}
    for layer in counts.layers:
        for quantity, fitted in fits[layer.name].items():
            metrics |= {f"exponent_{name}.{quantity}.{layer.name}": fit.value for name, fit in fitted.items()}
        for n, d in counts.sweep.points(layer.name):
            metrics[f"time_s.{layer.name}.n_{n}.d_{d}"] = sizes[layer.name][n, d]["time"]
    return metrics


def _differences(counts: Counts) -> list[Difference]:
    settings = counts.settings
    attention = ("self-attention", "restricted self-attention")
    convolutions = ("convolutional", "separable convolution")
    return [
        Difference(
            "attention layer",
            "only the attention function, without the projections of queries, keys, values and output",
            "the same, with one head",
            attention,
        ),
        Difference("neighbourhood size", "r, no value stated", f"r = {settings.window}", attention[1:]),
        Difference("kernel size", "k, no value stated", f"k = {settings.kernel}, centred", convolutions),
        Difference("recurrence", "not stated", "h_t = tanh(W x_t + U h_t-1 + b), torch.nn.RNN", ("recurrent",)),
    ]


def _notes(counts: Counts, measured: Measurements, sizes: Sizes, fits: Fits) -> list[str]:
    sweep = counts.sweep
    lengths, widths, separable = (
        ", ".join(map(str, sorted(set(sizes)))) for sizes in (sweep.lengths, sweep.widths, sweep.separable_widths)
    )
    notes = [
        f"Exponents are slopes of log-log fits, with 95% confidence intervals: of n over n = {lengths} "
        f"at d = {sweep.width}, of d over d = {widths} at n = {sweep.length}. "
        f"The separable convolution is fitted over d = {separable}, where its second term dominates time, too.",
        "FLOP are counted by torch.utils.flop_counter: the matrix products and convolutions of a forward pass over one "
        "sequence. A backward pass takes two products for each.",
        "Time is a forward and backward pass over "
        f"{'one sequence' if measured.timing.batch == 1 else f'{measured.timing.batch} sequences'}: the median of "
        f"{measured.timing.rounds} rounds, in each of which every layer is timed at every size.",
        _crossing(counts, sizes),
        "The numbers of sequential operations and the longest paths are the paper's, not measured.",
        f"Measured on {measured.device_name}, {measured.threads} thread{'s' * (measured.threads > 1)}, "
        f"{measured.dtype}, torch {measured.torch_version}, in {duration(measured.seconds)}.",
    ]
    far = [
        f"{layer}, {'FLOP' if quantity == 'flop' else 'time'} over {name} ({found:.2f} instead of {expected})"
        for layer, fitted in fits.items()
        for quantity in QUANTITIES
        for name, expected in _expected(layer).items()
        if abs((found := fitted[quantity][name].value) - expected) > TOLERANCE
    ]
    near = f"Every exponent of FLOP and of time is within {TOLERANCE} of the theory."
    return [*notes, f"More than {TOLERANCE} from the theory: {'; '.join(far)}." if far else near]


def _crossing(counts: Counts, sizes: Sizes) -> str:
    """Says from which n of the sweep self-attention takes longer than recurrence (§4)."""
    of_attention, of_recurrence = sizes["self-attention"], sizes["recurrent"]
    times = [(n, of_attention[n, d]["time"], of_recurrence[n, d]["time"]) for n, d in counts.sweep.over_n()]
    if (n := crossing(times)) is not None:
        found = f"self-attention takes longer than recurrence from n = {n:,.0f}"
    else:
        _, attention_s, recurrent_s = times[-1]
        found = f"{'self-attention' if attention_s > recurrent_s else 'recurrence'} takes longer at every n"
    d = counts.sweep.width
    return f"By counted operations, self-attention and recurrence meet at n = d. By time, at d = {d}, {found}."


def _plot(counts: Counts, sizes: Sizes, quantity: Quantity, variable: Variable) -> Markup:
    """Plots a quantity of all layer types over n or d."""
    title, factor = PLOTTED[quantity]
    along = VARIABLES.index(variable)
    lines = [
        Curve(layer, [(point[along], factor * costs[point][quantity]) for point in sweeps(counts, layer)[variable]])
        for layer, costs in sizes.items()
    ]
    other = f"d = {counts.sweep.width}" if variable == "n" else f"n = {counts.sweep.length}"
    return curves(title, f"{variable} ({other})", lines, f"{quantity}-over-{variable}", log=True)
