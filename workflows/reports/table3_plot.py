"""Plots how much each row of Table 3 differs from base, as measured against as printed.

Each axis has its own scale: on other text and after fewer updates, a row's effect can be ten times the paper's, or a
tenth of it. What the plot compares is signs and order.
"""

from collections.abc import Collection, Mapping

from markupsafe import Markup
from matplotlib.axes import Axes

from workflows.paper import KINDS, Kind
from workflows.reports.svg import COLORS, INK, Plot, Point, figure, image
from workflows.tables.table3 import Table3

TITLES: dict[Kind, str] = {"perplexity": "perplexity (lower is better)", "bleu": "BLEU (higher is better)"}
MARKER_PT = 5.0
LABEL_PT = 8.0
MARGIN = 0.12
"""The margin beyond the outermost points, as a fraction of their range."""
LABEL_OFFSET_PT = 3.0, 3.0
"""From a point to its label, to the right and up."""
LINE_PT = 1.0
HEIGHT_IN = 3.5
SAME, OTHER = COLORS[0], COLORS[1]
"""The colours of rows whose sign is the paper's, and of all other rows."""


def deltas(table: Table3, kind: Kind) -> dict[str, Point]:
    """Returns the printed and the measured difference from base of each row that has both, without base itself."""
    return {
        row.name: (row.printed.from_base[kind], row.trained.from_base[kind])
        for row in table.rows
        if row.name != "base" and row.printed and row.trained and row.trained.from_base
    }


def agrees(delta: Point) -> bool:
    """Tells whether the measured difference has the sign of the printed one, and neither is zero."""
    return delta[0] * delta[1] > 0


def within_noise(table: Table3, kind: Kind) -> set[str]:
    """Returns the rows that do not differ from base by more than the noise between seeds, where that is known."""
    trained = {row.name: row.trained for row in table.rows if row.trained and row.trained.is_beyond_noise}
    return {name for name, one in trained.items() if one.is_beyond_noise and not one.is_beyond_noise[kind]}


def plots(table: Table3) -> list[Plot]:
    """Draws one panel for each figure; none where no row, or no base, was measured."""
    points_of_kinds = {kind: deltas(table, kind) for kind in KINDS}
    return [
        _panel(TITLES[kind], points, within_noise(table, kind)) for kind, points in points_of_kinds.items() if points
    ]


def figures(table: Table3) -> list[Markup]:
    """Returns the same panels as figures with their data."""
    points_by_kind = {kind: points for kind in KINDS if (points := deltas(table, kind))}
    return [
        figure(
            image(plot), f"differences-{kind}", ("row", "paper", "here"), [(name, *at) for name, at in points.items()]
        )
        for plot, (kind, points) in zip(plots(table), points_by_kind.items(), strict=True)
    ]


def _panel(title: str, points: Mapping[str, Point], noisy: Collection[str]) -> Plot:
    def draw(axes: Axes) -> None:
        axes.set_ylabel("Δ measured")
        axes.set_xlim(_limits([x for x, _ in points.values()]))
        axes.set_ylim(_limits([y for _, y in points.values()]))
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        axes.fill_between([0, right], 0, top, color=SAME, alpha=0.12, linewidth=0)
        axes.fill_between([left, 0], bottom, 0, color=SAME, alpha=0.12, linewidth=0)
        axes.axhline(0, color=INK, linewidth=LINE_PT, alpha=0.55)
        axes.axvline(0, color=INK, linewidth=LINE_PT, alpha=0.55)
        for name, point in points.items():
            color = INK if name in noisy else SAME if agrees(point) else OTHER
            filled = SAME if color == SAME else "none"
            axes.plot(*point, "o", color=color, markerfacecolor=filled, markersize=MARKER_PT, clip_on=False)
            axes.annotate(name, point, LABEL_OFFSET_PT, textcoords="offset points", fontsize=LABEL_PT)

    described = "; ".join(f"{name}: {x:+g} in the paper, {y:+.3g} here" for name, (x, y) in points.items())
    return Plot(title, "Δ in the paper", draw, HEIGHT_IN, described)


def _limits(values: list[float]) -> tuple[float, float]:
    """Returns limits that enclose the values and zero."""
    low, high = min(0.0, *values), max(0.0, *values)
    margin = MARGIN * (high - low or 1.0)
    return low - margin, high + margin
