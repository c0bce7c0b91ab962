"""Plots as images inside a page: they show text as it is given, say in words what they show, and hold their data."""

from tests.support.html_reader import Reader, csv_files, drawings
from workflows.reports.svg import COLORS, INK, NOISY_POINTS, Curve, curves, figure, running_mean, styles

FALLING = [(10.0, 90.0), (20.0, 9.0), (30.0, 6.0), (40.0, 5.0)]


def inside(image: str) -> str:
    """Returns the SVG of an image."""
    (svg,) = drawings(image)
    return svg


def test_text_is_shown_as_it_is() -> None:
    """Markup in a title or label is not interpreted, and dollar signs are not typeset."""
    image = curves('<i>"$x$', "updates", [Curve(FALLING, "$\\alpha$ & <b>", INK)])
    page, reader = Reader(image), Reader(inside(image))
    assert not {"i", "b"} & {*page.tags, *reader.tags}
    assert '<i>"$x$' in reader.text
    assert "$\\alpha$ & <b>" in reader.text
    assert ("alt", '<i>"$x$ against updates: $\\alpha$ & <b> ends at 5') in page.attributes


def test_legend_names_a_label_once() -> None:
    """The seeds of a row are curves with one label, which appears once in the legend."""
    image = curves("loss", "updates", [Curve(FALLING, "A1", INK), Curve(FALLING[1:], "A1", INK)])
    assert Reader(inside(image)).text.split().count("A1") == 1


def test_limits_cut_off_what_lies_outside() -> None:
    """With limits of 4 and 9 the axis goes no higher, although the curve begins at 90."""
    line = [Curve(FALLING, "A1", INK)]
    assert "80" in Reader(inside(curves("loss", "updates", line))).text.split()
    cut = Reader(inside(curves("loss", "updates", line, y_limits=(4, 9)))).text.split()
    assert "8" in cut
    assert "80" not in cut


def test_the_same_curves_are_the_same_text() -> None:
    """Names inside a drawing do not depend on chance, nor does it hold the time, so a report made again is the same."""
    line = [Curve(FALLING, "A1", INK)]
    assert curves("loss", "updates", line) == curves("loss", "updates", line)


def test_colours_and_dashes_tell_curves_apart() -> None:
    """Four models differ in colour, and in dashes for print."""
    looks = styles(["a", "b", "c", "d", "a"])
    assert list(looks) == ["a", "b", "c", "d"]
    assert len({color for color, _ in looks.values()}) == len({str(style) for _, style in looks.values()}) == 4


def test_noisy_curves_have_their_mean_on_top() -> None:
    """The mean is over the last points; a curve of few points is drawn as it is."""
    assert running_mean([(0, 1), (1, 3), (2, 5), (3, 100)], 2) == [(0, 1), (1, 2), (2, 4), (3, 52.5)]
    noisy = Curve([(float(i), float(i % 2)) for i in range(NOISY_POINTS + 1)], "noisy", COLORS[0])
    smooth, plain = (inside(curves("loss", "updates", [noisy], smooth=is_smooth)) for is_smooth in (True, False))
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
