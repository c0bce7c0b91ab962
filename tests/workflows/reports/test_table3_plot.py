"""The plot of Table 3 has every row in its place, and is left out where there is nothing to compare."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from tests.support.html_reader import drawings
from workflows import paper
from workflows.paper import KINDS, Kind
from workflows.reports.table3 import OTHER, SAME, deltas, dots, within_noise
from workflows.tables.table3 import Figure, Printed, Table3, Table3Row, Trained

Pair = tuple[float, float]


def line(variation: paper.Variation, measured: Mapping[Kind, float] | None) -> Table3Row:
    """Makes a row as printed whose measured differences from base are `measured`; None if base was not run."""
    base = paper.TABLE_3[0]
    from_base: dict[Kind, float] = {
        "perplexity": round(float(variation.perplexity) - float(base.perplexity), 2),
        "bleu": round(float(variation.bleu) - float(base.bleu), 2),
    }
    figures = [Figure(7.0), Figure(30.0), Figure(29.0)]
    trained = Trained(*figures, 10**6, 600, (1,), 60.0, 1e12, measured)
    printed = Printed("", variation.perplexity, variation.bleu, None, from_base)
    return Table3Row(variation.name, "", "measured", "", printed, trained)


def table(measured: Callable[[Mapping[Kind, float]], Mapping[Kind, float] | None], n_rows: int = 20) -> Table3:
    """Makes a table of the paper's rows whose measured differences follow from the printed ones."""
    lines = []
    for variation in paper.TABLE_3[:n_rows]:
        row = line(variation, None)
        assert row.printed is not None
        lines.append(line(variation, measured(row.printed.from_base)))
    return Table3(lines, [], [], [], [])


def places(panel: str) -> dict[str, Pair]:
    """Finds where the names of rows stand in a drawing."""
    matches = re.findall(r'<text [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>([A-E]\d?|base|big)</text>', panel)
    return {name: (float(x), float(y)) for x, y, name in matches}


def dots_of(panel: str) -> list[tuple[Pair, str]]:
    """Finds where the points of a drawing are, and their colours."""
    matches = re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)" style="[^"]*stroke: (#\w+)', panel)
    return [((float(x), float(y)), color) for x, y, color in matches if color in (SAME, OTHER)]


def tenfold(printed: Mapping[Kind, float]) -> dict[Kind, float]:
    """Returns ten times the paper's differences, so rows that are equal there stay equal."""
    return {kind: 10 * delta for kind, delta in printed.items()}


def drawn(table: Table3) -> list[str]:
    """Draws the panels of a table's plot, those that have rows, and leaves out their legends."""
    points = {kind: deltas(table, kind) for kind in KINDS}
    return [
        drawing.partition('<g id="legend')[0]
        for kind in KINDS
        if points[kind]
        for drawing in drawings(dots(kind, points[kind], within_noise(table, kind)))
    ]


@pytest.fixture(scope="module")
def panels() -> list[str]:
    """The panels of the plot of all rows."""
    return drawn(table(tenfold))


def test_each_row_is_there_but_base(panels: list[str]) -> None:
    """Each of the two panels has the nineteen rows other than base, once."""
    names = [variation.name for variation in paper.TABLE_3[1:]]
    for panel in panels:
        assert list(places(panel)) == names
        assert len(dots_of(panel)) == 19


def test_a_name_is_near_its_point(panels: list[str]) -> None:
    """C1, the worst by far, is the outermost point and has its name beside it."""
    for panel, choose in zip(panels, (max, min), strict=True):
        x, y = places(panel)["C1"]
        (dot_x, dot_y), _ = choose(dots_of(panel), key=lambda dot: dot[0][0])
        assert abs(x - dot_x) < 25
        assert abs(y - dot_y) < 15


def test_colour_says_whether_the_sign_is_the_paper_s(panels: list[str]) -> None:
    """With the printed signs all rows agree but those whose printed Δ is zero; with opposite signs, none does."""
    colors = [[color for _, color in dots_of(panel)] for panel in panels]
    assert [panel.count(OTHER) for panel in colors] == [1, 1]  # E by perplexity, A3 by BLEU
    against = table(lambda printed: {kind: -delta for kind, delta in printed.items()})
    assert {color for panel in drawn(against) for _, color in dots_of(panel)} == {OTHER}


def test_rows_within_the_noise_are_in_neither_colour() -> None:
    """A row no further from base than the noise between seeds shows no sign, by perplexity or by BLEU."""
    unmarked = table(tenfold)
    lines = [
        replace(row, trained=replace(row.trained, is_beyond_noise={"perplexity": row.name != "C1", "bleu": True}))
        for row in unmarked.rows
        if row.trained
    ]
    perplexity, bleu = drawn(replace(unmarked, rows=lines))
    assert (len(dots_of(perplexity)), len(dots_of(bleu))) == (18, 19)
    assert "C1" in places(perplexity)


def test_needs_a_measured_base_and_another_row() -> None:
    """Base and one other row are enough; base alone, or rows without base, leave nothing to compare."""
    assert [list(places(panel)) for panel in drawn(table(tenfold, n_rows=2))] == [["A1"], ["A1"]]
    assert drawn(table(tenfold, n_rows=1)) == []
    assert drawn(table(lambda printed: None)) == []
