"""The HTML report of Table 1 is complete."""

from pathlib import Path

import pytest

from pipeline.complexity.records import CountsArtifact, MeasurementsArtifact
from tests.support.html_reader import Reader, page_of
from tests.support.tiny_complexity import counts, measurements, theory_s
from workflows.reports.table1 import tabulate


@pytest.fixture
def report(tmp_path: Path) -> str:
    """The report of times as in theory."""
    (tmp_path / "counts").mkdir()
    counted = CountsArtifact(tmp_path / "counts").write(counts())
    measured = MeasurementsArtifact(tmp_path / "counts").write(measurements(theory_s))
    return page_of(tmp_path, tabulate, counted, measured)


def test_rows_have_the_paper_s_figures_and_ours(report: str) -> None:
    """A row per layer type, and every element closed."""
    reader = Reader(report)
    assert reader.misnested == []
    row = next(row for row in reader.rows if row[0] == "recurrent" and len(row) == 12)
    assert row[1:] == ["O(n·d²)", "1", "1.00", "1.00±0.00", "2", "2.00", "2.00±0.00", "O(n)", "1", "O(n)", "2"]
    assert ["32", "1", "200", "not up to 256"] in reader.rows
    assert "a machine" in reader.text
