"""The HTML report of Table 2 is complete, self-contained, and safe with text from outside."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.store.artifact import Context
from tests.support.html_reader import (
    Reader,
    assert_asks_for_nothing_outside,
    assert_drawings_do_not_share_names,
    drawings,
)
from workflows.reports.publish import tabulate
from workflows.tables.measurements import MeasuredInputs


@pytest.fixture
def report(cell: Callable[..., MeasuredInputs], tmp_path: Path) -> str:
    """The report of two cells."""
    (tmp_path / "table").mkdir()
    table = tabulate(Context(tmp_path / "table"), [cell("en-de", "base"), cell("en-fr", "big")])
    return (table.folder / "report.html").read_text(encoding="utf-8")


def test_asks_for_nothing_outside(report: str) -> None:
    """The page loads no script, address or file, so it is the same offline and in a mail."""
    assert_asks_for_nothing_outside(report)


def test_drawings_do_not_share_names(report: str) -> None:
    """No drawing uses the clip paths or markers of another."""
    assert len(drawings(report)) == 6
    assert_drawings_do_not_share_names(report)


def test_text_from_outside_is_escaped(report: str) -> None:
    """Markup in a sentence is shown and not interpreted."""
    assert "<b>" not in report
    assert "&lt;b&gt;Bücher&lt;/b&gt;" in report
    reader = Reader(report)
    assert "She sleeps & dreams." in reader.text


def test_every_part_is_there(report: str) -> None:
    """The report has the table, differences, notes, and samples and settings of each cell."""
    reader = Reader(report)
    for shown in (
        "Transformer (base)",
        "not run",
        "What differs",
        "tok:13a",
        "N 2, d_model 128",
        "1.4 M",
        "7.389",
        "Masked Multi-Head Attention",
    ):
        assert shown in reader.text
    assert reader.text.count("Das alte Haus steht auf dem Hügel.") == 2
