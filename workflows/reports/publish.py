"""Writes the files of Tables 1 to 4 from what was measured: the last stage of each workflow.

Each function imports the report of its own table alone: together they import torch, SciPy and all of Matplotlib, which
everybody at the end of a workflow would wait for.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.complexity.figures import CountsArtifact, MeasurementsArtifact
from pipeline.store.artifact import Context, JsonArtifact
from workflows.command_line import UNKNOWN, CommandLine
from workflows.reports.corpus import CorpusReport
from workflows.tables import table1, table2, table3, table4
from workflows.tables.measurements import Translation, worst_samples
from workflows.tables.parser_measurements import ParserInputs
from workflows.tables.render import Shown, render_markdown


def tabulate_layers(
    context: Context,
    counted: CountsArtifact,
    measured: MeasurementsArtifact,
    command: CommandLine = UNKNOWN,
) -> table1.Table1Artifact:
    """Writes Table 1 from what was counted and what was measured of the layer types."""
    from workflows.reports.table1 import render

    measurements = measured.load()
    table = table1.compute(counted.load(), measurements)
    artifact = table1.Table1Artifact(context.folder)
    _write(artifact, table, render(table, measurements, command.typed))
    return artifact


def tabulate(
    context: Context,
    cells: list[Translation],
    reports: Sequence[CorpusReport] = (),
    command: CommandLine = UNKNOWN,
) -> table2.Table2Artifact:
    """Writes Table 2 with the `cells` that were run; the table says of the others that they were not.

    `reports` are the reports of the cells' texts, one for each language pair.
    """
    from workflows.reports.table2 import render

    measured = [cell.measured() for cell in cells]
    table = table2.compute(measured)
    worst = [worst_samples(cell) for cell in cells]
    report = render(table, measured, [one.load() for one in reports], command.typed, worst)
    artifact = table2.Table2Artifact(context.folder)
    _write(artifact, table, report)
    return artifact


def tabulate_rows(
    context: Context,
    rows: list[table3.RowInputs],
    reports: Sequence[CorpusReport] = (),
    command: CommandLine = UNKNOWN,
) -> table3.Table3Artifact:
    """Writes Table 3 with all of its rows, including those without figures; `reports` has the report of their text."""
    from workflows.reports.table3 import render

    table, measured = table3.compute(rows)
    shown = next((row.trainings[0] for row in rows if row.name in measured), None)
    worst = worst_samples(shown) if shown else ()
    report = render(table, measured, [one.load() for one in reports], command.typed, worst)
    artifact = table3.Table3Artifact(context.folder)
    _write(artifact, table, report)
    return artifact


def tabulate_parsers(
    context: Context,
    rows: list[ParserInputs],
    reports: Sequence[CorpusReport] = (),
    command: CommandLine = UNKNOWN,
) -> table4.Table4Artifact:
    """Writes Table 4 with the `rows` that were run; `reports` are those of their trees."""
    from workflows.reports.table4 import render

    table, measured = table4.compute(rows)
    report = render(table, measured, [one.load() for one in reports], command.typed)
    artifact = table4.Table4Artifact(context.folder)
    _write(artifact, table, report)
    return artifact


def _write(artifact: JsonArtifact[Any], table: Shown, report: str) -> None:
    """Writes the three files of a table: JSON, Markdown under the same name, and `report.html`."""
    artifact.write(table)
    markdown_file = artifact.folder / Path(artifact.figures_file).with_suffix(".md")
    markdown_file.write_text(render_markdown(table), encoding="utf-8")
    (artifact.folder / "report.html").write_text(report, encoding="utf-8")
