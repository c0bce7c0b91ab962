"""Renders the report of Table 1, one HTML file, and writes it with the table: the last stage of the workflow."""

from collections.abc import Callable, Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from pipeline.complexity.exponents import Exponent
from pipeline.complexity.figures import CountsArtifact, Crossover, Measurements, MeasurementsArtifact
from pipeline.store.artifact import Context
from workflows.command_line import UNKNOWN, CommandLine
from workflows.reports import page
from workflows.reports.svg import COLORS, Plot, Point, image
from workflows.tables.table1 import QUANTITIES, VARIABLES, Quantity, Table1, Table1Artifact, Variable, compute

PLOTTED: dict[Quantity, tuple[str, float]] = {
    "time": ("time, ms", 1e3),
    "flop": ("counted FLOP, G", 1e-9),
    "memory": ("peak memory, MB", 1e-6),
}
"""The drawings: what is drawn, its title and the factor to its unit."""
LINES = {"self-attention": COLORS[0], "with projections": COLORS[5], "recurrent": COLORS[1]}
"""The curves of a crossover, in the colours of their layer types where they have one."""


def render(table: Table1, measured: Measurements, command: str = "") -> str:
    """Renders the report as HTML that needs nothing outside itself."""
    return page.render(
        "table1.html.j2",
        table,
        command=command,
        colors=colors(table),
        drawings=[_sizes(table, quantity, variable) for quantity in PLOTTED for variable in VARIABLES],
        crossovers=[_crossover(one) for one in measured.crossovers],
        crossover_colors=LINES,
    )


def colors(table: Table1) -> dict[str, str]:
    """Returns the colour of each layer type."""
    return {layer.name: COLORS[i] for i, layer in enumerate(table.layers)}


def _sizes(table: Table1, quantity: Quantity, variable: Variable) -> Markup:
    """Draws a quantity of all layer types over n or d: dots as measured, and the fitted line."""
    title, factor = PLOTTED[quantity]
    value = QUANTITIES[quantity]
    lines = []
    for layer in table.layers:
        sizes = layer.over_n if variable == "n" else layer.over_d
        points = [(getattr(size, variable), factor * value(size)) for size in sizes]
        lines.append((colors(table)[layer.name], points, _scaled(layer.fits[quantity][variable], factor)))
    fixed = table.layers[0].over_n[0].d if variable == "n" else table.layers[0].over_d[0].n
    other = f"d = {fixed}" if variable == "n" else f"n = {fixed}"

    def draw(axes: Axes) -> None:
        for color, points, fitted in lines:
            axes.plot(*zip(*points, strict=True), "o", color=color, markersize=3.5)
            ends = [points[0][0], points[-1][0]]
            axes.plot(ends, [fitted.factor * x**fitted.value for x in ends], color=color, linewidth=1.2)
        _logarithmic(axes)

    return image(Plot(title, f"{variable} ({other})", draw))


def _scaled(fitted: Exponent, factor: float) -> Exponent:
    return fitted._replace(factor=factor * fitted.factor)


def _crossover(measured: Crossover) -> Markup:
    """Draws the times of self-attention and recurrence over n."""
    values: dict[str, Callable[[int], float]] = {
        "self-attention": lambda i: measured.points[i].attention_s,
        "with projections": lambda i: measured.points[i].projected_s,
        "recurrent": lambda i: measured.points[i].recurrent_s,
    }

    def points(value: Callable[[int], float]) -> Sequence[Point]:
        return [(one.length, 1e3 * value(i)) for i, one in enumerate(measured.points)]

    def draw(axes: Axes) -> None:
        for name, value in values.items():
            axes.plot(*zip(*points(value), strict=True), "o-", color=LINES[name], markersize=3, linewidth=1.2)
        _logarithmic(axes)

    sequences = "one sequence" if measured.batch == 1 else f"{measured.batch} sequences"
    return image(Plot("time, ms", f"n (d = {measured.width}, {sequences})", draw))


def _logarithmic(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:g}")
    low, high = axes.get_xlim()
    axes.set_xticks([2.0**i for i in range(24) if low <= 2**i <= high])
    axes.yaxis.set_major_locator(LogLocator(numticks=6))


def tabulate(
    context: Context,
    counted: CountsArtifact,
    measured: MeasurementsArtifact,
    command: CommandLine = UNKNOWN,
) -> Table1Artifact:
    """Writes Table 1 from what was counted and what was measured of the layer types."""
    measurements = measured.load()
    table = compute(counted.load(), measurements)
    artifact = Table1Artifact(context.folder)
    page.write(artifact, table, render(table, measurements, command.typed))
    return artifact
