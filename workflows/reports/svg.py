"""Draws the plots of the reports as SVG that stands inside an HTML page and takes its text colour.

    figure(curves("loss", "updates", lines), "loss", ("model", "update", "loss"), rows)

Text appears where a pointer rests on a curve; a figure holds its data as CSV.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

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
LABEL_PT, LABEL_GAP_PT = 8.0, 9.5
"""The size of labels at the ends of curves, and the least distance between two of them."""
STYLES = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)))
"""The dashes of curves, so that they differ in print, too."""
NOISY_POINTS, MEANS = 60, 30
"""A curve of more points than the first is drawn pale, with the mean over a part of it on top: one of so many parts."""
MOST_HOVERS = 40
"""The most points of a curve that show their text."""
HOVER_PT = 6
LONG_NUMBER = re.compile(r"(\d\.\d{2})\d+")
COORDINATES = re.compile(r' (?:d|x|y|transform)="[^"]*"')
Point = tuple[float, float]
Hover = tuple[float, float, str]
"""A point in the units of the axes, and the text that appears there."""


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


def drawing(
    title: str,
    against: str,
    plot: Callable[[Axes], None],
    *,
    height_in: float = 2.9,
    hovers: Iterable[Hover] = (),
    described: str = "",
) -> Markup:
    """Returns an SVG of what `plot` draws on empty axes; each drawing of a page needs its own `title` and `against`.

    `described` says in words what can be seen, for those who cannot see it.
    """
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
        texts = _hover_texts(axes, figure.bbox.height, hovers)
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = COORDINATES.sub(lambda found: LONG_NUMBER.sub(r"\1", found[0]), svg)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg)  # HTML needs none; the file names no address
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    told = f"{title} against {against}" + (f": {described}" if described else "")
    label = Markup('<svg role="img" aria-label="{}" viewBox=').format(told)
    svg = re.sub(r"<svg [^>]*viewBox=", lambda _: label, svg, count=1)
    return Markup(svg.replace('version="1.1"', "", 1).replace("</svg>", f"{texts}</svg>"))


def _hover_texts(axes: Axes, height_pt: float, hovers: Iterable[Hover]) -> Markup:
    """Returns invisible circles that show a text where a pointer rests on them; none outside the axes."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    circles = Markup("")
    for x, y, text in hovers:
        if min(left, right) <= x <= max(left, right) and min(bottom, top) <= y <= max(bottom, top):
            place = axes.transData.transform((x, y))
            circles += Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{}"><title>{}</title></circle>').format(
                place[0], height_pt - place[1], HOVER_PT, text
            )
    return Markup('<g class="hovers" fill="transparent">{}</g>').format(circles) if circles else circles


def figure(
    svg: Markup, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str = ""
) -> Markup:
    """Returns a drawing with a link to its data as CSV, which the link itself holds: so the page stays one file.

    `name` is that of the file to save, without its ending.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    data = "data:text/csv;charset=utf-8," + quote(text.getvalue(), safe=",.;:/()")
    link = Markup('<a class="data" href="{}" download="{}.csv">CSV<span class="unseen">, data of {}</span></a>')
    captioned = Markup('<figure class="chart">{}<figcaption>{} {}</figcaption></figure>')
    return captioned.format(svg, caption, link.format(data, name, name))


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
    smooth: bool = False,
    y_limits: Point | None = None,
    height_in: float = 2.9,
) -> Markup:
    """Draws one line for each curve, from x = 0 on, with its label at its end or in a `legend`.

    Curves with the same label are labelled once. What lies outside `y_limits` is cut off. With `smooth`, a curve of
    many points is drawn pale, and its running mean over it.
    """

    def plot(axes: Axes) -> None:
        labelled: set[str] = set()
        drawn = []
        for given in lines:
            curve = given
            if smooth and len(given.points) > NOISY_POINTS:
                axes.plot(*zip(*given.points, strict=True), color=given.color, linewidth=0.7, alpha=0.3)
                curve = replace(given, points=running_mean(given.points, len(given.points) // MEANS))
            drawn.append(curve)
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
        if legend:
            axes.legend(frameon=False, ncols=1 + (len(labelled) > 5))
        else:
            _label_ends(axes, drawn, 72 * height_in)

    return drawing(
        title,
        against,
        plot,
        height_in=height_in,
        hovers=[hover for curve in lines for hover in _hovers(curve, against)],
        described="; ".join(f"{curve.label} ends at {curve.points[-1][1]:.4g}" for curve in lines if curve.points),
    )


def running_mean(points: Sequence[Point], width: int) -> list[Point]:
    """Returns at each point the mean over the last `width` of them, or over as many as there are yet."""
    heights = [y for _, y in points]
    windows = (heights[max(0, i + 1 - width) : i + 1] for i in range(len(points)))
    return [(x, sum(window) / len(window)) for (x, _), window in zip(points, windows, strict=True)]


def _hovers(curve: Curve, against: str) -> list[Hover]:
    """Returns the texts of a curve's points, or of as many of them as are few enough, the last one among them."""
    points = [*reversed([*reversed(curve.points)][:: -(-len(curve.points) // MOST_HOVERS) or 1])]
    return [(x, y, f"{curve.label}: {y:.4g} at {x:,.4g} {against}") for x, y in points]


def _label_ends(axes: Axes, lines: Sequence[Curve], height_pt: float) -> None:
    """Writes each label beside the end of its curve, moved up or down where it would cover another."""
    ends = {curve.label: curve for curve in lines if curve.points}
    if not ends:
        return
    to_fraction = axes.transScale + axes.transLimits
    heights = {label: float(to_fraction.transform(curve.points[-1])[1]) for label, curve in ends.items()}
    gap = LABEL_GAP_PT / (0.75 * height_pt)
    for label, height in spread(heights, gap).items():
        axes.annotate(
            label,
            ends[label].points[-1],
            (1.04, height),
            textcoords="axes fraction",
            fontsize=LABEL_PT,
            verticalalignment="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": ends[label].color,
                "linewidth": 0.8,
                "alpha": 0.7,
                "shrinkA": 1,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
        )


def spread(heights: Mapping[str, float], gap: float) -> dict[str, float]:
    """Returns the heights with at least `gap` between any two, in the same order, as near as can be to where they were.

    Heights are limited to 0 to 1, unless there are too many for that.
    """
    placed: list[tuple[list[str], float]] = []
    """Groups of names from the bottom up, each with the height of its middle."""
    for name, height in sorted(heights.items(), key=lambda one: one[1]):
        group, middle = [name], _limited(height, 0)
        while placed and middle - placed[-1][1] < gap * (len(group) + len(placed[-1][0])) / 2:
            below, height_below = placed.pop()
            mean = (middle * len(group) + height_below * len(below)) / (len(group) + len(below))
            group = [*below, *group]
            middle = _limited(mean, gap * (len(group) - 1) / 2)
        placed.append((group, middle))
    return {name: middle + gap * (i - (len(group) - 1) / 2) for group, middle in placed for i, name in enumerate(group)}


def _limited(middle: float, half: float) -> float:
    """Moves the middle of a group so that the group, which reaches `half` up and down, lies between 0 and 1."""
    return min(max(middle, half), 1 - half) if half <= 0.5 else 0.5
