"""Writes Table 4 with its report, one HTML file: the last stage of the workflow."""

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.parsing.trees import Tree, drawn
from pipeline.store.artifact import Context
from workflows import paper
from workflows.command_line import UNKNOWN, CommandLine
from workflows.tables import page
from workflows.tables.corpus import CorpusReport
from workflows.tables.learning import learning_figures
from workflows.tables.page import Section
from workflows.tables.parser_measurements import WSJ, ParserRow
from workflows.tables.table import Missing, Row, Table
from workflows.tables.table4 import RIGHT_BRANCHING, Table4Artifact, compute, name_of, training_of


def scores(rows: Sequence[ParserRow]) -> list[Row]:
    """Returns F1 of the parsers beside the paper's, and F1 of right-branching trees."""
    printed = {row.training: float(row.f1) for row in paper.TABLE_4 if row.name.startswith("Transformer")}
    lines = [Row(RIGHT_BRANCHING, "", {"here": row.baseline_scores.total.f1}) for row in rows[:1]]
    for row in rows:
        f1 = row.found.measured.total.f1 if row.found else Missing.FAILED
        values = {"paper": printed.pop(row.training, None), "here": f1}
        lines.append(Row(f"Transformer, {training_of(row)}", "", values))
    return lines + [
        Row(f"Transformer, {name}", "", {"paper": f1, "here": Missing.NOT_RUN}) for name, f1 in printed.items()
    ]


def said(rows: Sequence[ParserRow]) -> str:
    """States the parsers' F1 in a sentence."""
    parsed = [(training_of(row), row.found.measured.total.f1) for row in rows if row.found]
    if not parsed:
        return page.NOTHING_RUN
    reached = " and ".join(f"{f1:.1f} after training on {name}" for name, f1 in parsed)
    return f"The parser reaches F1 {reached}, right-branching trees {rows[0].baseline_scores.total.f1:.1f}."


def tabulate(
    context: Context, rows: list[ParserRow], reports: Sequence[CorpusReport] = (), command: CommandLine = UNKNOWN
) -> Table4Artifact:
    """Writes Table 4 with the `rows` that were run; `reports` are the reports on their trees."""
    candidates = [candidate for row in rows for candidate in row.candidates]
    return page.write(
        context,
        Table4Artifact,
        compute(rows),
        lead="English constituency parsing: the paper’s rows, followed by the rows measured here. F1 is in percent.",
        said=said(rows),
        beside="The paper used another treebank." * any(row.data != WSJ for row in rows),
        compared=Table("F1, test set", page.COMPARED, scores(rows)),
        sections=[
            *page.learning_curves(learning_figures(candidates)),
            *(
                Section(
                    f"Parses, {name_of(row)}, {training_of(row)}",
                    "Short sentences at regular intervals through the test set, wrong parses first.",
                    samples=[{"gold": _drawing(gold), "parse": _drawing(parse)} for gold, parse in row.drawn],
                )
                for row in rows
                if row.drawn
            ),
        ],
        models=candidates,
        reports=reports,
        command=command,
    )


def _drawing(tree: Tree) -> Markup:
    return Markup('<pre class="tree" tabindex="0">{}</pre>').format(drawn(tree))
