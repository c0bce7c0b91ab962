"""The last stage of Table 2: its files, from what was measured."""

from pipeline.artifacts import Context
from workflows import report
from workflows.measured import Measured, MeasuredInputs
from workflows.table2 import Table, compute, render_markdown, to_json


def tabulate(context: Context, cells: list[MeasuredInputs]) -> Table:
    """Stage: writes `table2.json`, `table2.md` and `report.html` of the cells, those not run included."""
    measured = [found for inputs in cells if (found := Measured.from_artifacts(inputs))]
    table = Table(context.folder)
    content = compute(measured)
    table.write_json("table2.json", to_json(content))
    (context.folder / "table2.md").write_text(render_markdown(content), encoding="utf-8")
    (context.folder / "report.html").write_text(report.render(content, measured), encoding="utf-8")
    return table
