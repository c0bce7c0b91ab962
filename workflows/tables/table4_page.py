"""Writes Table 4 with its report, one HTML file: the last stage of the workflow."""

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.parsing.trees import Tree, drawn
from pipeline.store.artifact import Context
from workflows.command_line import UNKNOWN, CommandLine
from workflows.tables import page
from workflows.tables.corpus import CorpusReport
from workflows.tables.learning import learning_figures
from workflows.tables.page import Section
from workflows.tables.parser_measurements import ParserRow
from workflows.tables.table4 import Table4Artifact, compute, name_of, training_of


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
        sections=[
            page.learning_curves(learning_figures(candidates)),
            *(
                Section(
                    f"Parses, {name_of(row)}, {training_of(row)}",
                    "Short sentences at regular intervals through the test set, wrong parses first.",
                    samples=[{"gold": _drawing(gold), "parse": _drawing(parse)} for gold, parse in row.drawn],
                )
                for row in rows
            ),
        ],
        models=candidates,
        reports=reports,
        command=command,
    )


def _drawing(tree: Tree) -> Markup:
    return Markup('<pre class="tree" tabindex="0">{}</pre>').format(drawn(tree))
