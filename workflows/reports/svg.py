"""Draws the plots of the reports with Matplotlib: each an SVG image inside the page, with its data as CSV.

figure(curves("loss", "updates", lines), "loss", ("model", "update", "loss"), rows)
"""

import base64
import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

COLORS = ("#2f6fd0", "#d1731c", "#1f9a78", "#a05ec0", "#cf4257", "#8d8a1f", "#2b9dba")
"""The colours of curves."""
INK = "#1d1f22"
WIDTH_IN = 4.4
STYLES = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)))
"""The dashes of curves, so that they differ in print, too."""
NOISY_POINTS, MEANS = 60, 30
"""A curve of more points than the first is drawn pale, with the mean over a part of it on top: one of so many parts."""
RC: Any = MappingProxyType(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "aiayn",  # the same figures give the same file
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
class Plot:
    """Axes and what `draw` draws on them."""

    title: str
    against: str
    """The quantity of the horizontal axis."""
    draw: Callable[[Axes], None]
    height_in: float = 2.9
    described: str = ""
    """What can be seen, in words, for those who cannot see it."""


@dataclass(frozen=True)
class Curve:
    """A line, with a dot at each point if there are few points."""

    points: Sequence[Point]
    label: str
    color: str
    style: Any = "-"
    """Dashes as matplotlib knows them."""


def styles(labels: Iterable[str]) -> dict[str, tuple[str, Any]]:
    """Returns a colour and dashes for each label."""
    return {label: (COLORS[i % len(COLORS)], STYLES[i % len(STYLES)]) for i, label in enumerate(dict.fromkeys(labels))}


def svg(plots: Sequence[Plot]) -> str:
    """Returns an SVG file that shows plots side by side."""
    file = io.StringIO()
    with rc_context(RC):
        figure = Figure((WIDTH_IN * len(plots), max(plot.height_in for plot in plots)), layout="constrained")
        for axes, plot in zip(figure.subplots(1, len(plots), squeeze=False)[0], plots, strict=True):
            axes.set_xlabel(plot.against)
            axes.set_title(plot.title, loc="left", fontsize=10, fontweight="bold")
            plot.draw(axes)
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def image(plot: Plot) -> Markup:
    """Returns a plot as an image that holds its own data."""
    text = f"{plot.title} against {plot.against}" + (f": {plot.described}" if plot.described else "")
    data = base64.b64encode(svg([plot]).encode()).decode()
    return Markup('<img alt="{}" src="data:image/svg+xml;base64,{}">').format(text, data)


def figure(
    picture: Markup, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str = ""
) -> Markup:
    """Returns a picture with a link to its data as CSV, which the link itself holds: so the page stays one file.

    `name` is that of the file to save, without its ending.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    data = "data:text/csv;charset=utf-8," + quote(text.getvalue(), safe=",.;:/()")
    link = Markup('<a class="data" href="{}" download="{}.csv">CSV<span class="unseen">, data of {}</span></a>')
    captioned = Markup('<figure class="chart">{}<figcaption>{} {}</figcaption></figure>')
    return captioned.format(picture, caption, link.format(data, name, name))


def curves(
    title: str,
    against: str,
    lines: Sequence[Curve],
    *,
    log: bool = False,
    smooth: bool = False,
    y_limits: Point | None = None,
) -> Markup:
    """Draws one line for each curve, from x = 0 on.

    Curves with the same label are labelled once. What lies outside `y_limits` is cut off. With `smooth`, a curve of
    many points is drawn pale, and its running mean over it.
    """

    def draw(axes: Axes) -> None:
        labelled: set[str] = set()
        for line in lines:
            curve = line
            if smooth and len(line.points) > NOISY_POINTS:
                axes.plot(*zip(*line.points, strict=True), color=line.color, linewidth=0.7, alpha=0.3)
                curve = replace(line, points=running_mean(line.points, len(line.points) // MEANS))
            axes.plot(
                [x for x, _ in curve.points],
                [y for _, y in curve.points],
                color=curve.color,
                linestyle=curve.style,
                linewidth=1.5,
                label=f"_{curve.label}" if curve.label in labelled else curve.label,
                marker="o" if len(curve.points) < 15 else None,
                markersize=3,
            )
            labelled.add(curve.label)
        if log and any(curve.points for curve in lines):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_locator(NullLocator())
        axes.set_xlim(left=0)
        if y_limits:
            axes.set_ylim(y_limits)
        axes.legend(frameon=False, ncols=1 + (len(labelled) > 5))

    described = "; ".join(f"{curve.label} ends at {curve.points[-1][1]:.4g}" for curve in lines if curve.points)
    return image(Plot(title, against, draw, described=described))


def running_mean(points: Sequence[Point], width: int) -> list[Point]:
    """Returns at each point the mean over the last `width` of them, or over as many as there are yet."""
    heights = [y for _, y in points]
    windows = (heights[max(0, i + 1 - width) : i + 1] for i in range(len(points)))
    return [(x, sum(window) / len(window)) for (x, _), window in zip(points, windows, strict=True)]
