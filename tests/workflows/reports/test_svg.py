"""SVG inside a page: it takes the page's text colour, loads nothing, and shows text as it is given."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes

from tests.support.html_reader import Reader, csv_files
from workflows.reports.svg import (
    COLORS,
    INK,
    MOST_HOVERS,
    NOISY_POINTS,
    Curve,
    curves,
    drawing,
    figure,
    running_mean,
    spread,
    standalone,
    styles,
)

FALLING = [(10.0, 90.0), (20.0, 9.0), (30.0, 6.0), (40.0, 5.0)]


def test_takes_the_colour_of_the_page() -> None:
    """Text, axes and curves in ink have the page's colour, and only a curve's own colour is fixed."""
    svg = curves("loss", "updates", [Curve(FALLING, "A1", COLORS[0]), Curve(FALLING, "base", INK)], legend=True)
    assert INK not in svg
    assert set(re.findall(r"(?:fill|stroke): (#\w+|currentColor)", svg)) == {"currentColor", COLORS[0]}
    assert "xmlns" not in svg


def test_text_is_shown_as_it_is() -> None:
    """Markup in a title or label is not interpreted, and dollar signs are not typeset."""
    svg = curves('<i>"$x$', "updates", [Curve(FALLING, "$\\alpha$ & <b>", INK)], legend=True)
    reader = Reader(svg)
    assert not {"i", "b"} & set(reader.tags)
    assert '<i>"$x$' in reader.text
    assert "$\\alpha$ & <b>" in reader.text
    (label,) = [value or "" for name, value in reader.attributes if name == "aria-label"]
    assert label == '<i>"$x$ against updates: $\\alpha$ & <b> ends at 5'


def test_legend_names_a_label_once() -> None:
    """The seeds of a row are curves with one label, which appears once in the legend."""
    svg = curves("loss", "updates", [Curve(FALLING, "A1", INK), Curve(FALLING[1:], "A1", INK)], legend=True)
    assert Reader(svg).text.split().count("A1") == 1


def test_limits_cut_off_what_lies_outside() -> None:
    """With limits of 4 and 9 the axis goes no higher, although the curve begins at 90."""
    line = [Curve(FALLING, "A1", INK)]
    assert "80" in Reader(curves("loss", "updates", line)).text.split()
    cut = Reader(curves("loss", "updates", line, y_limits=(4, 9))).text.split()
    assert "8" in cut
    assert "80" not in cut


def test_same_drawing_is_the_same_text() -> None:
    """Names inside a drawing depend on its title and not on chance, so a report made again is the same."""

    def plot(axes: Axes) -> None:
        axes.plot([1, 2], [3, 4])

    assert drawing("a", "b", plot) == drawing("a", "b", plot)
    assert drawing("a", "b", plot) != drawing("a", "c", plot)


def test_a_file_of_drawings_stands_alone() -> None:
    """Any XML reader can parse it, and the drawings are side by side, in their own widths, dark on white."""
    low, high = (curves(title, "updates", [Curve(FALLING, "A", INK)], height_in=n) for title, n in (("a", 2), ("b", 3)))
    root = ElementTree.fromstring(standalone([low, high]))
    parts = [part for part in root if part.tag.endswith("svg")]
    width = float(parts[0].attrib["width"])
    assert [float(part.attrib["x"]) for part in parts] == [12, 12 + width + 12]
    assert root.attrib["viewBox"] == f"0 0 {2 * width + 3 * 12:g} {3 * 72 + 2 * 12}"
    assert "color: #1d1f22" in root.attrib["style"]


def test_each_point_says_what_it_is() -> None:
    """A circle lies on each point of a curve and names it; points beyond the limits have none, long curves a part."""
    svg = curves("loss", "updates", [Curve(FALLING, "A<b>", INK)], y_limits=(4, 50))
    told = re.findall(r"<circle[^>]*><title>([^<]*)</title>", svg)
    assert told == [f"A&lt;b&gt;: {y:g} at {x:g} updates" for x, y in FALLING[1:]]
    (marker,) = re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*/>\s*</g>', svg)[-1:]
    last = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)[-1]
    assert max(abs(float(a) - float(b)) for a, b in zip(marker, last, strict=True)) < 0.2
    long = curves("loss", "updates", [Curve([(i, 1 + i % 3) for i in range(1000)], "long", INK)])
    shown = re.findall(r"<title>long: (\d) at ([\d,]+) updates", long)
    assert len(shown) <= MOST_HOVERS
    assert shown[-1][1] == "999"


def test_labels_at_the_ends_do_not_cover_each_other() -> None:
    """Four curves that end at the same height have four labels, each a line apart, in the order of the curves' ends."""
    lines = [Curve([(0.0, 5.0), (9.0, 1 + i / 1000)], f"model {i}", COLORS[i]) for i in range(4)]
    svg = curves("loss", "updates", lines)
    places = re.findall(r"<text [^>]*translate\([\d.]+ ([\d.]+)\)[^>]*>(model \d)</text>", svg) or re.findall(
        r'<text [^>]*y="([\d.]+)"[^>]*>(model \d)</text>', svg
    )
    heights = sorted((float(y), name) for y, name in places)
    assert [name for _, name in heights] == ["model 3", "model 2", "model 1", "model 0"]
    assert all(after - before >= 8 for (before, _), (after, _) in pairwise(heights))


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.floats(-1, 2), min_size=1, max_size=9), st.floats(0.01, 0.1))
def test_heights_are_spread_in_order(heights: dict[str, float], gap: float) -> None:
    """Whatever they were, no two are nearer than the gap, their order is kept, and all lie between 0 and 1."""
    placed = spread(heights, gap)
    in_order = [placed[name] for name in sorted(heights, key=lambda name: heights[name])]
    assert all(after - before >= gap - 1e-9 for before, after in pairwise(in_order))
    assert -1e-9 <= in_order[0] <= in_order[-1] <= 1 + 1e-9
    alone = {"a": 0.2, "b": 0.8}
    assert spread(alone, gap) == pytest.approx(alone)


def test_colours_and_dashes_tell_curves_apart() -> None:
    """Four models differ in colour, and in dashes for print."""
    looks = styles(["a", "b", "c", "d", "a"])
    assert list(looks) == ["a", "b", "c", "d"]
    assert len({color for color, _ in looks.values()}) == len({str(style) for _, style in looks.values()}) == 4


def test_noisy_curves_have_their_mean_on_top() -> None:
    """The mean is over the last points; a curve of few points is drawn as it is."""
    assert running_mean([(0, 1), (1, 3), (2, 5), (3, 100)], 2) == [(0, 1), (1, 2), (2, 4), (3, 52.5)]
    noisy = Curve([(float(i), float(i % 2)) for i in range(NOISY_POINTS + 1)], "noisy", COLORS[0])
    smooth, plain = (curves("loss", "updates", [noisy], smooth=is_smooth) for is_smooth in (True, False))
    assert smooth.count(f"stroke: {COLORS[0]}") == plain.count(f"stroke: {COLORS[0]}") + 1
    few = Curve(noisy.points[:NOISY_POINTS], "few", COLORS[0])
    assert curves("loss", "updates", [few], smooth=True) == curves("loss", "updates", [few])


def test_a_figure_holds_its_data() -> None:
    """The link to the data gives back every cell, whatever is in it, and needs no other file."""
    rows = [['a, "b"', "1.5"], ["é<b>&\n", "#%+"]]
    html = figure(curves("loss", "updates", [Curve(FALLING, "A", INK)]), "loss", ("model", "loss"), rows, "<i>")
    name, data = next(iter(csv_files(html).items()))
    assert name == "loss.csv"
    assert data[0] == ["model", "loss"]
    assert data[1] == rows[0]
    assert "<i>" not in html
    assert "<b>" not in html
    assert "CSV, data of loss" in Reader(html).text
