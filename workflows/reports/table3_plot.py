"""The plot of Table 3: by how much each row differs from base, measured against printed.

Scales are a figure's own on both axes: on other text and in fewer updates a row's effect can be ten times the paper's,
or a tenth. What is compared is signs and order.
"""

from collections.abc import Mapping
from typing import cast

from adjustText import adjust_text
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workflows.reports.svg import COLORS, INK, Point, drawing
from workflows.tables.table3 import KINDS, Kind, Table3

TITLES: dict[Kind, str] = {"perplexity": "perplexity (less is better)", "bleu": "BLEU (more is better)"}
MARKER_PT = 5.0
LABEL_PT = 8.0
MARGIN = 0.12
"""Beyond the outermost points, as a fraction of their range."""
LABEL_ROOM = 1.2, 1.3
"""Kept free around a label, in its widths and heights."""
LABEL_ROUNDS = 300
"""At most, of moving labels off each other and the points."""
LINE_PT = 1.0
HEIGHT_IN = 3.5
SAME, OTHER = COLORS[0], COLORS[1]
"""Of rows whose sign is the paper's, and of the others."""


def deltas(table: Table3, kind: Kind) -> dict[str, Point]:
    """Row to (printed, measured) difference from base: of rows that have both, without base itself."""
    return {
        row.name: (row.printed.from_base[kind], row.trained.from_base[kind])
        for row in table.rows
        if row.name != "base" and row.printed and row.trained and row.trained.from_base
    }


def agrees(delta: Point) -> bool:
    """Whether the measured difference has the sign of the printed one; neither is zero."""
    return delta[0] * delta[1] > 0


def plots(table: Table3) -> list[Markup]:
    """One panel a figure; none where no row or no base was measured."""
    found = {kind: deltas(table, kind) for kind in KINDS}
    return [_panel(TITLES[kind], points) for kind, points in found.items() if points]


def _panel(title: str, points: Mapping[str, Point]) -> Markup:
    def plot(axes: Axes) -> None:
        axes.set_ylabel("Δ measured")
        axes.set_xlim(_limits([x for x, _ in points.values()]))
        axes.set_ylim(_limits([y for _, y in points.values()]))
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        axes.fill_between([0, right], 0, top, color=SAME, alpha=0.12, linewidth=0)
        axes.fill_between([left, 0], bottom, 0, color=SAME, alpha=0.12, linewidth=0)
        axes.axhline(0, color=INK, linewidth=LINE_PT, alpha=0.55)
        axes.axvline(0, color=INK, linewidth=LINE_PT, alpha=0.55)
        for point in points.values():
            color = SAME if agrees(point) else OTHER
            filled = color if agrees(point) else "none"
            axes.plot(*point, "o", color=color, markerfacecolor=filled, markersize=MARKER_PT, clip_on=False)
        _label(axes, points)

    return drawing(title, "Δ in the paper", plot, height_in=HEIGHT_IN)


def _limits(values: list[float]) -> tuple[float, float]:
    """Around the values and zero."""
    low, high = min(0.0, *values), max(0.0, *values)
    margin = MARGIN * (high - low or 1.0)
    return low - margin, high + margin


def _label(axes: Axes, points: Mapping[str, Point]) -> None:
    """Writes each point's name beside it, and draws a line to it where that is not near."""
    cast(Figure, axes.figure).draw_without_rendering()  # lays the axes out
    texts = [axes.text(*point, name, fontsize=LABEL_PT) for name, point in points.items()]
    xs, ys = zip(*points.values(), strict=True)
    leader = {"arrowstyle": "-", "color": INK, "linewidth": 0.5, "alpha": 0.5}
    adjust_text(texts, x=xs, y=ys, ax=axes, expand=LABEL_ROOM, iter_lim=LABEL_ROUNDS, arrowprops=leader)
