"""Draws the plots of the reports as SVG that stands inside an HTML page and takes its text colour."""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

COLORS = ("#2f6fd0", "#d1731c", "#1f9a78", "#a05ec0", "#cf4257", "#8d8a1f", "#2b9dba")
"""The colours of curves, legible on white and on near-black."""
INK = "#010203"
"""A placeholder for the text colour, which is replaced by that of the page."""
WIDTH_IN = 4.4
MARGIN_PT = 12.0
"""The margin around drawings in a file of their own."""
Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """A line, with a dot at each point if there are few points."""

    points: Sequence[Point]
    label: str
    color: str


def drawing(title: str, against: str, plot: Callable[[Axes], None], *, height_in: float = 2.9) -> Markup:
    """Returns an SVG of what `plot` draws on empty axes; each drawing of a page needs its own `title` and `against`."""
    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": title + against,
        "font.family": "sans-serif",
        "font.size": 9,
        "text.parse_math": False,
        **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6,
        "axes.grid": True,
        "grid.color": INK,
        "grid.alpha": 0.12,
        "grid.linewidth": 0.6,
    }
    with rc_context(style):
        # At 72 pixels per inch, a pixel is a point, as in the SVG.
        figure = Figure(figsize=(WIDTH_IN, height_in), dpi=72, layout="constrained")
        axes = figure.subplots()
        axes.set_xlabel(against)
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
        plot(axes)
        file = io.StringIO()
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=no_metadata)
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg)  # HTML needs none; the file names no address
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    label = Markup('<svg role="img" aria-label="{} against {}" viewBox=').format(title, against)
    svg = re.sub(r"<svg [^>]*viewBox=", lambda _: label, svg, count=1)
    return Markup(svg.replace('version="1.1"', "", 1))


def standalone(drawings: Sequence[Markup]) -> str:
    """Returns an SVG file that shows drawings side by side, dark on white."""
    placed, width, height = "", MARGIN_PT, 0.0
    for svg in map(str, drawings):
        size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
        assert size
        placed += svg.replace("<svg ", f'<svg x="{width:g}" y="{MARGIN_PT:g}" width="{size[1]}" height="{size[2]}" ', 1)
        width, height = width + float(size[1]) + MARGIN_PT, max(height, float(size[2]) + 2 * MARGIN_PT)
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    shape = f'width="{width:g}pt" height="{height:g}pt" viewBox="0 0 {width:g} {height:g}"'
    return f'<svg {names} {shape} style="color: #1d1f22; background: white">\n{placed}\n</svg>\n'


def curves(
    title: str,
    against: str,
    lines: Sequence[Curve],
    *,
    log: bool = False,
    legend: bool = False,
    y_limits: Point | None = None,
    height_in: float = 2.9,
) -> Markup:
    """Draws one line for each curve, from x = 0 on.

    The `legend` names each label once. What lies outside `y_limits` is cut off.
    """

    def plot(axes: Axes) -> None:
        labelled: set[str] = set()
        for curve in lines:
            axes.plot(
                [x for x, _ in curve.points],
                [y for _, y in curve.points],
                color=curve.color,
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
        if legend:
            axes.legend(frameon=False, ncols=1 + (len(labelled) > 5))

    return drawing(title, against, plot, height_in=height_in)
