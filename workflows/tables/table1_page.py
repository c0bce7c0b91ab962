"""Writes Table 1 with its report, one HTML file: the last stage of the workflow."""

from markupsafe import Markup

from pipeline.complexity.records import Counts, CountsArtifact, MeasurementsArtifact
from pipeline.store.artifact import Context
from workflows.command_line import UNKNOWN, CommandLine
from workflows.tables import page
from workflows.tables.page import Section
from workflows.tables.plots import Curve, curves
from workflows.tables.table1 import VARIABLES, Quantity, Sizes, Table1Artifact, Variable, compute, sizes_of, sweeps

PLOTTED: dict[Quantity, tuple[str, float]] = {"time": ("time, ms", 1e3), "flop": ("counted FLOP, G", 1e-9)}
"""The plotted quantities: title and factor to the unit."""


def tabulate(
    context: Context, counted: CountsArtifact, measured: MeasurementsArtifact, command: CommandLine = UNKNOWN
) -> Table1Artifact:
    """Writes Table 1 from the layer types' counts and measurements."""
    counts, measurements = counted.load(), measured.load()
    sizes = sizes_of(counts, measurements)
    drawings = [_sizes(counts, sizes, quantity, variable) for quantity in PLOTTED for variable in VARIABLES]
    explanation = (
        "Time covers forward and backward, FLOP only forward. Both axes are logarithmic, so a slope is an exponent."
    )
    return page.write(
        context,
        Table1Artifact,
        compute(counts, measurements),
        lead="Five layer types over a sequence of length n and width d: the paper’s complexities beside the exponents "
        f"counted and measured on {measurements.device_name}.",
        sections=[Section("Cost over n and d", explanation, drawings)],
        command=command,
    )


def _sizes(counts: Counts, sizes: Sizes, quantity: Quantity, variable: Variable) -> Markup:
    """Plots a quantity of all layer types over n or d."""
    title, factor = PLOTTED[quantity]
    along = VARIABLES.index(variable)
    lines = [
        Curve(layer, [(point[along], factor * costs[point][quantity]) for point in sweeps(counts, layer)[variable]])
        for layer, costs in sizes.items()
    ]
    other = f"d = {counts.sweep.width}" if variable == "n" else f"n = {counts.sweep.length}"
    return curves(title, f"{variable} ({other})", lines, f"{quantity}-over-{variable}", log=True)
