import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from tests.support.html_reader import Reader, csv_files, drawings, page_of
from workflows.command_line import CommandLine
from workflows.tables import table3_page
from workflows.tables.measured import EMPTY, listed
from workflows.tables.table3 import RowTrainings

COMMAND = CommandLine(typed="python -m workflows.reproduce_table3 --rows 'F<b>1'")


@pytest.fixture(scope="module")
def report(trained_row: Callable[..., RowTrainings], tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = [
        trained_row("base", 7.0, 7.4, translated=["", "Ein", "Sie"]),
        trained_row("A1", 9.0),
        RowTrainings("B1", {"d_k": 4}, (), "no room on <i>node 2</i>"),
        trained_row("B2", 8.0, 9.0),
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
    assert "at regular intervals through dev, not picked by hand" in text
    assert (text.count(EMPTY), listed([{"translation": ""}])) == (1, f"translation: {EMPTY}\n")
    assert "By perplexity, 2 of 3 rows differ from base in the paper's direction." in text
    assert cells_of(report, "A1")[4:7:2] == ["+0.37", "+1.80"]
    assert cells_of(report, "B1")[4:7:2] == ["+0.24", "failed"]
    rows = {name: [float(each or "nan") for each in rest] for name, *rest in csv_files(report)["differences.csv"][1:]}
    assert rows["A1"][1] == pytest.approx(math.log(9.0 / (7.0 * 7.4) ** 0.5))
    interval = stats.ttest_ind(np.log([8.0, 9.0]), np.log([7.0, 7.4]), equal_var=False).confidence_interval()
    assert rows["B2"] == pytest.approx([math.log(5.01 / 4.92), np.mean(interval), np.ptp(interval) / 2], abs=1e-3)
    assert [name for name, (*_, margin) in rows.items() if math.isnan(margin)] == ["A1", "C1", "F<b>1"]


def test_a_row_of_one_s_own_is_in_the_table_alone(report: str) -> None:
    assert cells_of(report, "F<b>1")[3:5] == ["", ""]
    differences, *curves = [Reader(drawing).text.split() for drawing in drawings(report)]
    assert {"A1", "B2", "C1", "F<b>1", "+0.224", "here"} < set(differences)
    assert not {"base", "B1"} & set(differences)
    assert [{"A1", "B2", "C1", "F1"} & set(panel) for panel in curves] == [{"A1"}, {"B2"}, {"C1"}, {"F1"}]
    assert all("base" in panel for panel in curves)
