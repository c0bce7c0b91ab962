"""SVG inside a page: it takes the page's text colour, loads nothing, and shows text as it is given."""

import re
from xml.etree import ElementTree

from matplotlib.axes import Axes

from tests.support.html_reader import Reader
from workflows.reports.svg import COLORS, INK, Curve, curves, drawing, standalone

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
    assert ("aria-label", '<i>"$x$ against updates') in reader.attributes


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
