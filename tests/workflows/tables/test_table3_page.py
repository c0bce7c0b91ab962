import re
from collections.abc import Callable

import pytest

from tests.support.html_reader import Reader, csv_files, drawings, page_of
from workflows.command_line import CommandLine
from workflows.tables import table3_page
from workflows.tables.table3 import RowTrainings

COMMAND = CommandLine(typed="python -m workflows.reproduce_table3 --rows 'F<b>1'")


@pytest.fixture(scope="module")
def report(trained_row: Callable[..., RowTrainings], tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = [
        trained_row("base", 7.0, 7.4),
        trained_row("A1", 9.0),
        RowTrainings("B1", {"d_k": 4}, (), "no room on <i>node 2</i>"),
        trained_row("C1", 6.0, errors=(0,), parameters=900_000),
        RowTrainings("E", {"positions": "learned"}, ()),
        RowTrainings("F<b>1", {"dropout": 0.3}, trained_row("F1", 7.5).trainings),
    ]
    return page_of(tmp_path_factory.getbasetemp(), table3_page.tabulate, rows, (), COMMAND)


def cells_of(report: str, name: str) -> list[str]:
    """Returns the texts of a row of the table."""
    return next(row for row in Reader(report).rows if len(row) > 6 and row[0] == name)


def test_first_screen_says_what_came_out_and_text_from_outside_is_escaped(report: str) -> None:
    assert not {"b", "i"} & set(re.findall(r"<(\w+)>", report))
    text = " ".join(Reader(report).text.split())
    assert all(shown in text for shown in ("F<b>1", "<i>node 2</i>"))
    assert "Base reaches perplexity 7.20 and BLEU" in text
    assert "By perplexity, 1 of 2 rows differ from base in the paper's direction." in text
    assert cells_of(report, "A1")[4:7:2] == ["+0.37", "+1.80"]
    assert cells_of(report, "B1")[4:7:2] == ["+0.24", "failed"]
    heading, *data = csv_files(report)["differences-perplexity.csv"]
    assert (heading, [row[:2] for row in data]) == (["row", "paper", "here"], [["A1", "0.37"], ["C1", "1.19"]])
    assert [float(row[2]) for row in data] == pytest.approx([1.8, -1.2])


def test_a_row_of_one_s_own_is_in_the_table_alone(report: str) -> None:
    assert cells_of(report, "F<b>1")[3:5] == ["", ""]
    perplexity, bleu, *curves = [Reader(drawing).text.split() for drawing in drawings(report)]
    for panel in (perplexity, bleu):
        assert {"A1", "C1"} < set(panel)
        assert not {"F<b>1", "base", "B1"} & set(panel)
    assert [{"A1", "C1", "F1"} & set(panel) for panel in curves] == [{"A1"}, {"C1"}, {"F1"}]
    assert all("base" in panel for panel in curves)
