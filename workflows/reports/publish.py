"""The last stages: the files of Tables 2 and 3, from what was measured."""

from collections.abc import Sequence

from pipeline.store.artifact import Context
from workflows.reports import table2 as table2_report
from workflows.reports import table3 as table3_report
from workflows.reports.corpus import CorpusReport
from workflows.tables import table3, table3_text
from workflows.tables.measurements import Measured, MeasuredInputs
from workflows.tables.table2 import Table2Artifact, compute, render_markdown, to_json


def tabulate(context: Context, cells: list[MeasuredInputs], reports: Sequence[CorpusReport] = ()) -> Table2Artifact:
    """Stage: writes `table2.json`, `table2.md` and `report.html` of the cells, those not run included.

    `reports` are those of the cells' texts, one a language pair.
    """
    measured = [found for inputs in cells if (found := Measured.from_artifacts(inputs))]
    table = Table2Artifact(context.folder)
    content = compute(measured)
    table.write_json("table2.json", to_json(content))
    (context.folder / "table2.md").write_text(render_markdown(content), encoding="utf-8")
    (context.folder / "report.html").write_text(
        table2_report.render(content, measured, [one.load() for one in reports]), encoding="utf-8"
    )
    return table


def tabulate_rows(
    context: Context, rows: list[table3.RowInputs], reports: Sequence[CorpusReport] = ()
) -> table3.Table3Artifact:
    """Stage: writes `table3.json`, `table3.md` and `report.html` of the rows of Table 3, those without figures too.

    `reports` holds that of their text.
    """
    table = table3.Table3Artifact(context.folder)
    content, measured = table3.compute(rows)
    table.write_json("table3.json", table3.to_json(content))
    (context.folder / "table3.md").write_text(table3_text.render_markdown(content), encoding="utf-8")
    (context.folder / "report.html").write_text(
        table3_report.render(content, measured, [one.load() for one in reports]), encoding="utf-8"
    )
    return table
