"""Writes Table 2 with its report, one HTML file: the last stage of the workflow."""

from collections.abc import Sequence

from pipeline.store.artifact import Context
from pipeline.text.corpus_statistics import CorpusStatistics
from workflows.command_line import UNKNOWN, CommandLine
from workflows.reports import page
from workflows.reports.corpus import CorpusReport
from workflows.reports.learning import learning_figures
from workflows.tables.measurements import Translation
from workflows.tables.table2 import MEASURED_NAMES, WORD_BY_WORD, Table2, Table2Artifact, compute


def scores(table: Table2, cells: Sequence[Translation]) -> list[list[str]]:
    """Returns BLEU of each model beside the paper's, and of word-by-word substitution: name, paper, here."""
    lines = []
    for pair in dict.fromkeys(cell.pair for cell in cells):
        of_pair = [cell for cell in cells if cell.pair == pair]
        words = next(filter(None, (cell.baseline for cell in of_pair)), None)
        if words:
            lines.append([f"{pair.upper()} {WORD_BY_WORD}", "", f"{words.deciding:.2f}"])
        for cell in of_pair:
            score = " (sacreBLEU)" * (cell.main_bleu.paper_bleu is None)
            lines.append([f"{cell.label}{score}", _printed(table, cell), f"{cell.main_bleu.deciding:.2f}"])
    return lines


def _printed(table: Table2, cell: Translation) -> str:
    """Returns the paper's BLEU of the same model and language pair; empty where it prints none."""
    name = MEASURED_NAMES.get(cell.model)
    rows = (row for row in table.rows if row.origin == "paper" and name and row.name.startswith(name))
    row = next(rows, None)
    return row.cells[cell.pair].printed_bleu if row else ""


def said(table: Table2, lines: Sequence[Sequence[str]]) -> str:
    """Says the result in a sentence, from the lines of `scores`."""
    if not lines:
        return page.NOTHING_RUN
    reached = ", ".join(f"{name} {float(here):.1f}" for name, _, here in lines)
    printed = [paper for _, paper, _ in lines if paper]
    if not printed:
        return f"Paper BLEU: {reached}."
    figures = f"{' and '.join(printed)}{' of another text' * table.is_of_other_text}"
    return f"Paper BLEU: {reached}; the paper has {figures}."


def render(
    table: Table2,
    cells: Sequence[Translation],
    corpora: Sequence[CorpusStatistics] = (),
    command: str = "",
    warnings: Sequence[str] = (),
) -> str:
    """Renders the report as HTML that needs nothing outside itself; `corpora` are the texts behind the cells."""
    lines = scores(table, cells)
    return page.render(
        table,
        lead="The paper’s printed figures, with those measured here below them. BLEU is in percent, training cost in "
        "FLOP.",
        said=said(table, lines),
        compared=page.compared("paper BLEU, test set", lines) if lines else None,
        sections=[*page.learning_curves(learning_figures(cells)), *map(page.translations, cells)],
        models=cells,
        corpora=corpora,
        command=command,
        warnings=warnings,
    )


def tabulate(
    context: Context,
    cells: list[Translation],
    reports: Sequence[CorpusReport] = (),
    command: CommandLine = UNKNOWN,
) -> Table2Artifact:
    """Writes Table 2 with the `cells` that were run; the table says of the others that they were not.

    `reports` are the reports of the cells' texts, one for each language pair.
    """
    table = compute(cells)
    artifact = Table2Artifact(context.folder)
    corpora = [report.load() for report in reports]
    page.write(artifact, table, render(table, cells, corpora, command.typed, context.warnings))
    return artifact
