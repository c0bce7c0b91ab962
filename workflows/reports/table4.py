"""Renders the report of Table 4, one HTML file, and writes it with the table: the last stage of the workflow."""

from collections.abc import Sequence

from markupsafe import Markup
from nltk.tree import Tree
from nltk.tree.prettyprinter import TreePrettyPrinter

from pipeline.parsing.trees import bracketed
from pipeline.store.artifact import Context
from pipeline.text.corpus_statistics import CorpusStatistics
from workflows import paper
from workflows.command_line import UNKNOWN, CommandLine
from workflows.reports import page
from workflows.reports.corpus import CorpusReport
from workflows.reports.learning import learning_figures
from workflows.reports.overview import Overview, bars, compared, ran
from workflows.reports.svg import styles
from workflows.tables.parser_differences import WSJ
from workflows.tables.parser_measurements import ParserInputs, ParserRow
from workflows.tables.table4 import RIGHT_BRANCHING, Table4, Table4Artifact, compute, name_of, training_of


def overview(table: Table4, rows: Sequence[ParserRow]) -> Overview:
    """Returns the first screen: F1 of the parsers beside the paper's, and of right-branching trees."""
    printed = {row.training: row.f1 for row in paper.TABLE_4 if row.name.startswith("Transformer")}
    baseline = next((row.f1 for row in table.rows if row.name.startswith(RIGHT_BRANCHING)), None)
    lines = [[RIGHT_BRANCHING, "", f"{baseline:.2f}"]] if baseline is not None else []
    reached, others = [], []
    for row in rows:
        in_paper = printed.get(row.training, "")
        f1 = f"{row.free.scores.total.f1:.2f}" if row.free else ""
        lines.append([f"Transformer, {training_of(row)}", in_paper, f1 or "failed"])
        reached += [f"{float(f1):.1f} after training on {training_of(row)}"] if f1 else []
        others += [in_paper] if f1 and in_paper and row.data != WSJ else []
    run = {row.training for row in rows}
    lines += [[f"Transformer, {name}", f1, "not run"] for name, f1 in printed.items() if name not in run]
    said = "Nothing was parsed: the table has the paper’s figures alone."
    if reached:
        words = f", right-branching trees {baseline:.1f}" if baseline is not None else ""
        of_paper = f"; the paper’s {' and '.join(others)} {'are' if others[1:] else 'is'} of another treebank"
        said = f"The parser reaches F1 {' and '.join(reached)}{words}{of_paper if others else ''}."
    candidates = [one for row in rows for one in row.candidates]
    scores = compared("F1, test set", lines)
    return Overview(said, ran(candidates), scores, bars(scores, "table4") if reached else Markup(""))


def render(
    table: Table4,
    rows: Sequence[ParserRow],
    corpora: Sequence[CorpusStatistics] = (),
    command: str = "",
) -> str:
    """Renders the report as HTML that needs nothing outside itself; `corpora` are the trees behind the rows."""
    candidates = [one for row in rows for one in row.candidates]
    chosen = [one for row in rows if (one := row.chosen)]
    return page.render(
        "table4.html.j2",
        table,
        corpora,
        cells=candidates,
        overview=overview(table, rows),
        command=command,
        rows=rows,
        name_of=name_of,
        training_of=training_of,
        drawn=drawn,
        drawings=learning_figures(candidates, styles(one.label for one in candidates)),
        settings={one.label: page.settings(one) for one in chosen},
    )


def drawn(tree: Tree) -> str:
    """Draws a tree in box-drawing characters, words at the bottom; in brackets where it is too deep for that."""
    try:
        text: str = TreePrettyPrinter(tree).text(unicodelines=True)
    except RecursionError:
        text = bracketed(tree)
    return text


def tabulate(
    context: Context,
    rows: list[ParserInputs],
    reports: Sequence[CorpusReport] = (),
    command: CommandLine = UNKNOWN,
) -> Table4Artifact:
    """Writes Table 4 with the `rows` that were run; `reports` are those of their trees."""
    table, measured = compute(rows)
    report = render(table, measured, [one.load() for one in reports], command.typed)
    artifact = Table4Artifact(context.folder)
    page.write(artifact, table, report)
    return artifact
