"""Draws the reports' plots with Matplotlib, as inline SVG with their data as CSV.

curves("loss", "update", [Curve("EN-DE base", [(50, 5.5), (100, 4.9)])], "loss")

Matplotlib is imported only to draw, since every command imports this module.
"""

import base64
import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ("#2f6fd0", "#d1731c", "#1f9a78", "#a05ec0", "#cf4257", "#8d8a1f", "#2b9dba")
"""Curve colours."""
INK = "#1d1f22"
STYLES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)))
"""Curve dashes, which tell curves apart in print, too."""
SIZE_IN = 4.4, 3.2
MAX_MARKED, MAX_PLAIN, MEANS = 15, 60, 30
"""Curves of fewer points than the first have dots. Smoothed curves of more points than the second are drawn pale, with
a running mean over this fraction of their points on top."""
MAX_DENSE = 100
"""Logarithmic axes that span at most this ratio label 2 and 5 beside the powers of ten."""
HEADROOM = 1.5
"""Cut plots end above at this multiple of the worst final value, since curves begin far above."""
RC: Any = MappingProxyType(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "aiayn",  # reproducible files
        "font.family": "sans-serif",
        "font.size": 9,
        "text.parse_math": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6,
        "axes.grid": True,
        "grid.alpha": 0.4,
        "grid.linewidth": 0.6,
    }
)
Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """A labelled line; curves with the same label share their style."""

    label: str
    points: Sequence[Point]


def svg(title: str, against: str, draw: Callable[["Axes"], None], height_in: float = SIZE_IN[1]) -> str:
    """Returns what `draw` draws as an SVG file; `against` labels the horizontal axis."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    file = io.StringIO()
    with rc_context(RC):
        figure = Figure((SIZE_IN[0], height_in), layout="constrained")
        axes = figure.subplots()
        axes.set_xlabel(against)
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
        draw(axes)
        if labels := axes.get_legend_handles_labels()[1]:
            ncols = 3 if max(map(len, labels)) < 20 else 1 + (max(map(len, labels)) < 30)
            figure.legend(loc="outside lower left", ncols=ncols, frameon=False, fontsize=8)
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def figure(drawing: str, described: str, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """Returns an SVG file as an HTML figure with a link to its data, both inlined so that the page stays one file.

    `described` is the alternative text; `name` is the stem of the CSV file.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return Markup(
        '<figure><img alt="{}" src="data:image/svg+xml;base64,{}"><figcaption>'
        '<a href="data:text/csv;charset=utf-8,{}" download="{}.csv">CSV<span class="unseen">, data of {}</span></a>'
        "</figcaption></figure>"
    ).format(described, base64.b64encode(drawing.encode()).decode(), quote(text.getvalue(), safe=",.;:/()"), name, name)


def curves(
    title: str,
    against: str,
    lines: Sequence[Curve],
    name: str,
    *,
    log: bool = False,
    smooth: bool = False,
    cut: bool = False,
) -> Markup:
    """Draws one line per curve; each label appears once in the legend.

    `log` makes both axes logarithmic. `smooth` draws long curves pale, with their running mean on top. `cut` begins
    where a curve comes near the worst end.
    """
    labels = list(dict.fromkeys(line.label for line in lines))

    def draw(axes: "Axes") -> None:
        drawn = set[str]()
        for line in lines:
            place, points = labels.index(line.label), line.points
            color, style = COLORS[place % len(COLORS)], STYLES[place % len(STYLES)]
            if smooth and len(points) > MAX_PLAIN:
                axes.plot(*zip(*points, strict=True), color=color, linewidth=0.7, alpha=0.3)
                points = running_mean(points, len(points) // MEANS)
            label, marker = None if line.label in drawn else line.label, "o" if len(points) < MAX_MARKED else None
            look = {"color": color, "linestyle": style, "linewidth": 1.5, "marker": marker, "markersize": 3}
            axes.plot(*zip(*points, strict=True), label=label, **look)
            drawn.add(line.label)
        if log:
            _make_logarithmic(axes)
        else:
            axes.set_xlim(left=0)
        if cut:
            points, top = [point for line in lines for point in line.points], max(line.points[-1][1] for line in lines)
            axes.set_ylim(0.97 * min(y for _, y in points), HEADROOM * top)
            axes.set_xlim(min(x for x, y in points if y <= HEADROOM * top))

    ends = "; ".join(f"{line.label} ends at {line.points[-1][1]:.4g}" for line in lines)
    rows = [(line.label, f"{x:.6g}", f"{y:.6g}") for line in lines for x, y in line.points]
    described = f"{title} against {against}: {ends}"
    return figure(svg(title, against, draw), described, name, ("curve", against, title), rows)


def _make_logarithmic(axes: "Axes") -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < MAX_DENSE * low else (1,), numticks=6))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:g}")


def running_mean(points: Sequence[Point], width: int) -> list[Point]:
    """Returns at each point the mean over the last `width` points, or over fewer at the beginning."""
    heights = [y for _, y in points]
    windows = (heights[max(0, i + 1 - width) : i + 1] for i in range(len(points)))
    return [(x, sum(window) / len(window)) for (x, _), window in zip(points, windows, strict=True)]
