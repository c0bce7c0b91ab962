"""Plots as images inside a page: they show text as it is given, say in words what they show, and hold their data."""

import pytest

from tests.support.html_reader import Reader, csv_files, drawings
from workflows.reports.plots import COLORS, MAX_PLAIN, Curve, curves, figure, running_mean

FALLING = [(10.0, 90.0), (20.0, 9.0), (30.0, 6.0), (40.0, 5.0)]


def inside(image: str) -> str:
    """Returns the SVG of an image."""
    (svg,) = drawings(image)
    return svg


def test_text_is_shown_as_it_is() -> None:
    """Markup in a title or label is not interpreted, and dollar signs are not typeset."""
    image = curves('<i>"$x$', "updates", [Curve("$\\alpha$ & <b>", FALLING)], "x")
    page, reader = Reader(image), Reader(inside(image))
    assert not {"i", "b"} & {*page.tags, *reader.tags}
    assert '<i>"$x$' in reader.text
    assert "$\\alpha$ & <b>" in reader.text
    assert ("alt", '<i>"$x$ against updates: $\\alpha$ & <b> ends at 5') in page.attributes


def test_curves_with_the_same_label_look_alike_and_are_named_once() -> None:
    """The seeds of a row are curves with one label, which appears once in the legend, and one colour."""
    image = curves("loss", "updates", [Curve(label, FALLING) for label in ("A1", "A1", "A2")], "loss")
    assert Reader(inside(image)).text.split().count("A1") == 1
    alone = curves("loss", "updates", [Curve("A1", FALLING)], "loss")
    assert inside(image).count(f"stroke: {COLORS[0]}") > inside(alone).count(f"stroke: {COLORS[0]}")
    assert f"stroke: {COLORS[1]}" in inside(image)
    assert f"stroke: {COLORS[2]}" not in inside(image)


def test_what_lies_far_above_the_ends_is_cut_off() -> None:
    """The curve begins at 90 and ends at 5: cut, the axis goes no higher than 7.5."""
    line = [Curve("A1", FALLING)]
    assert "80" in Reader(inside(curves("loss", "updates", line, "loss"))).text.split()
    shown = Reader(inside(curves("loss", "updates", line, "loss", cut=True))).text.split()
    assert "7.0" in shown
    assert not {"8.0", "80"} & set(shown)


def test_a_slope_between_logarithmic_axes() -> None:
    """Both axes have powers as their ticks, written in full."""
    shown = Reader(inside(curves("time", "n", [Curve("A", [(64, 1.0), (256, 1000.0)])], "time", log=True))).text.split()
    assert {"64", "128", "256", "1", "10", "100", "1000"} <= set(shown)


def test_the_same_curves_are_the_same_text() -> None:
    """Names inside a drawing do not depend on chance, nor does it hold the time, so a report made again is the same."""
    line = [Curve("A1", FALLING)]
    assert curves("loss", "updates", line, "loss") == curves("loss", "updates", line, "loss")


def test_noisy_curves_have_their_mean_on_top() -> None:
    """The mean is over the last points; a curve of few points is drawn as it is."""
    assert running_mean([(0, 1), (1, 3), (2, 5), (3, 100)], 2) == [(0, 1), (1, 2), (2, 4), (3, 52.5)]
    noisy = Curve("noisy", [(float(i), float(i % 2)) for i in range(MAX_PLAIN + 1)])
    smooth, plain = (
        inside(curves("loss", "updates", [noisy], "loss", smooth=is_smooth)) for is_smooth in (True, False)
    )
    assert smooth.count(f"stroke: {COLORS[0]}") == plain.count(f"stroke: {COLORS[0]}") + 1
    few = Curve("few", noisy.points[:MAX_PLAIN])
    assert curves("loss", "updates", [few], "loss", smooth=True) == curves("loss", "updates", [few], "loss")


def test_curves_hold_their_points() -> None:
    """A line of the CSV for each point, whether it is drawn or cut off."""
    html = curves("dev perplexity", "update", [Curve("A", FALLING)], "dev_perplexity-A", cut=True)
    heading, first, *others = csv_files(html)["dev_perplexity-A.csv"]
    assert (heading, first) == (["curve", "update", "dev perplexity"], ["A", "10", "90"])
    assert len(others) == 3


@pytest.mark.parametrize("text", ['a, "b"', "é<b>&\n", "#%+"])
def test_a_figure_holds_its_data_whatever_is_in_it(text: str) -> None:
    """The link gives back every cell and needs no other file; markup in it is no markup of the page."""
    html = figure("<svg></svg>", "<i>seen", "loss", ("model", "loss"), [[text, "1.5"]])
    data = csv_files(html)["loss.csv"]
    assert data[0] == ["model", "loss"]
    assert "\n".join(cell for row in data[1:] for cell in row).startswith(text.strip())
    assert "<i>" not in html
    assert "<b>" not in html
    assert "CSV, data of loss" in Reader(html).text
