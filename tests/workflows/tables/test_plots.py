import pytest

from tests.support.html_reader import Reader, csv_files, drawings
from workflows.tables.page import marked
from workflows.tables.plots import Curve, curves, figure

FALLING = [(10.0, 90.0), (20.0, 9.0), (30.0, 6.0), (40.0, 5.0)]


def test_text_is_shown_as_it_is() -> None:
    image, again = [curves('<i>"$x$', "updates", [Curve("$\\alpha$ & <b>", FALLING)], "x") for _ in range(2)]
    assert image == again
    page, reader = Reader(image), Reader(*drawings(image))
    assert not {"i", "b"} & {*page.tags, *reader.tags}
    assert '<i>"$x$' in reader.text
    assert "$\\alpha$ & <b>" in reader.text
    assert ("alt", '<i>"$x$ against updates: $\\alpha$ & <b> ends at 5') in page.attributes


@pytest.mark.parametrize("text", ['a, "b"', "é<b>&\n", "#%+"])
def test_a_figure_holds_its_data_whatever_is_in_it(text: str) -> None:
    """The link returns every cell without another file. Markup in it is not the page's markup."""
    html = figure("<svg></svg>", "<i>seen", "loss", ("model", "loss"), [[text, "1.5"]])
    data = csv_files(html)["loss.csv"]
    assert data[0] == ["model", "loss"]
    assert "\n".join(cell for row in data[1:] for cell in row).startswith(text.strip())
    assert "<i>" not in html
    assert "<b>" not in html
    assert "CSV, data of loss" in Reader(html).text


def test_words_that_the_other_side_lacks_are_marked() -> None:
    assert marked("Das alte Haus steht .", "Das Haus stand .") == "Das <mark>alte</mark> Haus <mark>steht</mark> ."
    assert marked("a b c", "") == "<mark>a b c</mark>"
    assert marked("", "a") == ""
    assert marked("<b> x", "x") == "<mark>&lt;b&gt;</mark> x"
