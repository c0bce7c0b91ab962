"""The HTML report of Table 2 is complete, self-contained, and safe with text from outside."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.store.artifact import Context
from tests.support.html_reader import (
    Reader,
    assert_asks_for_nothing_outside,
    csv_files,
    drawings,
)
from workflows.reports import table2 as table2_report
from workflows.tables import table2
from workflows.tables.measurements import Translation


@pytest.fixture
def report(cell: Callable[..., Translation], tmp_path: Path) -> str:
    """The report of two cells."""
    (tmp_path / "table").mkdir()
    table = table2_report.tabulate(Context(tmp_path / "table"), [cell("en-de", "base"), cell("en-fr", "big")])
    return (table.folder / "report.html").read_text(encoding="utf-8")


def test_asks_for_nothing_outside(report: str) -> None:
    """The page loads no script, address or file, so it is the same offline and in a mail."""
    assert_asks_for_nothing_outside(report)


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
    ):
        assert shown in reader.text
    # Each cell's reference stands among the samples and again among the worst, with the word marked that is wrong
    assert reader.text.count("Das alte Haus steht auf dem Hügel.") == 4
    assert report.count("auf dem <mark>Berg.</mark>") == report.count("auf dem <mark>Hügel.</mark>") == 4


def test_first_screen_says_what_came_out(report: str) -> None:
    """One sentence has each model's BLEU and the paper's; the plain table and the picture have the same figures."""
    text = " ".join(Reader(report).text.split())
    (said,) = re.findall(r"EN-DE: base reaches ([\d.]+); EN-FR: big reaches ([\d.]+) BLEU; the paper’s", text)
    assert "the paper’s 27.3 and 41.8 are of another text." in text
    rows = {row[0]: row[1:] for row in Reader(report).rows if len(row) == 3}
    assert [rows[name][0] for name in ("EN-DE base", "EN-FR big")] == ["27.3", "41.8"]
    measured = [float(rows[name][1]) for name in ("EN-DE base", "EN-FR big")]
    assert [float(figure) for figure in said] == pytest.approx(measured, abs=0.051)
    bars = csv_files(report)["table2.csv"]
    assert bars[0] == ["", "paper", "here"]
    assert [[name, *map(float, rows[name])] for name in rows if name in ("EN-DE base", "EN-FR big")] == [
        [name, float(paper), float(here)] for name, paper, here in bars[1:]
    ]
    assert "2 models of 1.4 M parameters, 400 updates each" in text
    assert "three sentences, 3 pairs" in text


def test_each_figure_has_its_data_and_alternative_text(report: str) -> None:
    """The data of the learning curves are the lines of `metrics.jsonl`; every drawing is described."""
    found = csv_files(report)
    assert {"loss-by-updates.csv", "dev_perplexity-by-minutes.csv", "learning_rate-by-updates.csv"} < found.keys()
    assert found["loss-by-updates.csv"][1] == ["EN-DE base", "1", "50", "5.5"]
    assert len(found["dev_perplexity-by-updates.csv"]) == 1 + 2 * 9
    labels = re.findall(r'<svg role="img" aria-label="([^"]+)"|<img alt="([^"]+)"', report)
    assert len(labels) == len(drawings(report))
    assert any("EN-DE base ends at" in label for _, label in labels)


def test_costs_of_each_model_are_listed(report: str) -> None:
    """Time, rates and both costs, of the trainings that were measured."""
    (base,) = [row for row in Reader(report).rows if row[0] == "EN-DE base" and len(row) == 8]
    assert base[1:4] == ["1 min 40 s", "400", "8,000"]
    assert base[7] == "6 sentences/s"


def test_nothing_was_run() -> None:
    """A table of printed figures alone says so first."""
    report = table2_report.render(table2.compute([]), [])
    assert "Nothing was run: the table has the paper’s figures alone." in Reader(report).text
    assert drawings(report) == []
    assert_asks_for_nothing_outside(report)
