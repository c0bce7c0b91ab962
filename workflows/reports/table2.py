"""Renders the report of Table 2, one HTML file, and writes it with the table: the last stage of the workflow."""

from collections.abc import Sequence

from markupsafe import Markup

from pipeline.store.artifact import Context
from pipeline.text.corpus_statistics import CorpusStatistics
from workflows.command_line import UNKNOWN, CommandLine
from workflows.reports import page
from workflows.reports.corpus import CorpusReport
from workflows.reports.learning import learning_figures
from workflows.reports.overview import Overview, bars, compared, ran
from workflows.reports.svg import styles
from workflows.tables.measurements import Measured, Sample, Translation, worst_samples
from workflows.tables.table2 import MEASURED_NAMES, Table2, Table2Artifact, compute

SUBSTITUTION = "word-by-word"
OTHER_TEXT = ("training data", "test set")
"""The aspects in which a cell of the same text as the paper's does not differ."""


def overview(table: Table2, cells: Sequence[Measured]) -> Overview:
    """Returns the first screen: paper BLEU of each model beside the paper's, and of word-by-word substitution."""
    lines, by_pair, printed = [], [], []
    for pair in dict.fromkeys(cell.pair for cell in cells):
        of_pair = [cell for cell in cells if cell.pair == pair]
        words = next((cell.word_by_word[cell.test_set] for cell in of_pair if cell.word_by_word), None)
        reached = [f"{cell.model} reaches {cell.main_scores.paper_bleu:.1f}" for cell in of_pair[:1]]
        reached += [f"{cell.model} {cell.main_scores.paper_bleu:.1f}" for cell in of_pair[1:]]
        if words:
            lines.append([f"{pair.upper()} {SUBSTITUTION}", "", f"{words.paper_bleu:.2f}"])
            reached.append(f"{SUBSTITUTION} {words.paper_bleu:.1f}")
        by_pair.append(f"{pair.upper()}: {', '.join(reached)}")
        for cell in of_pair:
            in_paper = _printed(table, cell)
            printed += [in_paper] * bool(in_paper)
            lines.append([cell.label, in_paper, f"{cell.main_scores.paper_bleu:.2f}"])
    said = "; ".join(by_pair) + (f" BLEU; {_of_paper(table, printed)}." if printed else " BLEU.")
    if not cells:
        said = "Nothing was run: the table has the paper’s figures alone."
    scores = compared("paper BLEU, test set", lines)
    return Overview(said, ran(cells), scores, bars(scores, "table2") if cells else Markup(""))


def _printed(table: Table2, cell: Measured) -> str:
    """Returns the paper's BLEU of the same model and language pair; empty where it prints none."""
    name = MEASURED_NAMES.get(cell.model)
    rows = (row for row in table.rows if row.origin == "paper" and name and row.name.startswith(name))
    row = next(rows, None)
    return row.cells[cell.pair].printed_bleu if row else ""


def _of_paper(table: Table2, printed: Sequence[str]) -> str:
    figures = f"{', '.join(printed[:-1])} and {printed[-1]}" if len(printed) > 1 else printed[0]
    is_other = any(difference.what in OTHER_TEXT for difference in table.differences)
    verb = "are" if len(printed) > 1 else "is"
    return f"the paper’s {figures} {verb} of another text" if is_other else f"in the paper {figures}"


def render(
    table: Table2,
    cells: Sequence[Measured],
    corpora: Sequence[CorpusStatistics] = (),
    command: str = "",
    worst: Sequence[Sequence[Sample]] = (),
) -> str:
    """Renders the report as HTML that needs nothing outside itself.

    `corpora` are the texts behind the cells, and `worst` the worst translations of each cell.
    """
    return page.render(
        "table2.html.j2",
        table,
        corpora,
        cells=cells,
        overview=overview(table, cells),
        command=command,
        sampled=list(zip(cells, worst or [()] * len(cells), strict=True)),
        drawings=learning_figures(cells, styles(cell.label for cell in cells)),
        settings={cell.label: page.settings(cell) for cell in cells},
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
    measured = [cell.measured() for cell in cells]
    table = compute(measured)
    worst = [worst_samples(cell) for cell in cells]
    report = render(table, measured, [one.load() for one in reports], command.typed, worst)
    artifact = Table2Artifact(context.folder)
    page.write(artifact, table, report)
    return artifact
