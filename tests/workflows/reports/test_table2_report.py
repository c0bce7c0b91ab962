"""The HTML report: complete, self-contained, and safe with text from outside."""

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
    """No script, no address, no file: it reads the same offline and in a mail."""
    assert_asks_for_nothing_outside(report)


def test_drawings_do_not_share_names(report: str) -> None:
    """Clip paths and markers of one drawing are not taken for another's."""
    assert len(drawings(report)) == 5
    assert_drawings_do_not_share_names(report)


def test_text_from_outside_is_escaped(report: str) -> None:
    """Markup in a sentence is shown, not obeyed."""
    assert "<b>" not in report
    assert "&lt;b&gt;Bücher&lt;/b&gt;" in report
    reader = Reader(report)
    assert "She sleeps & dreams." in reader.text


def test_tells_all_there_is(report: str) -> None:
    """Table, differences, notes, samples and settings of each cell."""
    reader = Reader(report)
    for told in ("Transformer (base)", "not run", "What differs", "tok:13a", "N 2, d_model 128", "1.4 M", "7.389"):
        assert told in reader.text
    assert reader.text.count("Das alte Haus steht auf dem Hügel.") == 2
