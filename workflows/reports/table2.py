"""Writes Table 2 with its report, one HTML file: the last stage of the workflow."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from pipeline.store.artifact import Context
from workflows.command_line import UNKNOWN, CommandLine
from workflows.reports import page
from workflows.reports.corpus import CorpusReport
from workflows.reports.learning import learning_figures
from workflows.reports.plots import Curve, nll_over
from workflows.tables.measurements import Translation
from workflows.tables.table import Results, Row, Table
from workflows.tables.table2 import (
    MEASURED_NAMES,
    NONE_FAILED,
    WORD_BY_WORD,
    Table2Artifact,
    baselines,
    compute,
    is_of_other_text,
)


def scores(results: Results, cells: Sequence[Translation]) -> list[Row]:
    """Returns BLEU of each model beside the paper's, and BLEU of word-by-word substitution."""
    printed = {row.name.removesuffix(" *"): row for row in results.tables[0].rows if row.origin == "paper"}
    words, rows = baselines(cells), []
    for pair in dict.fromkeys(cell.pair for cell in cells):
        if pair in words:
            rows.append(Row(f"{pair.upper()} {WORD_BY_WORD}", "", {"here": words[pair].deciding}))
        for cell in (cell for cell in cells if cell.pair == pair):
            score = " (sacreBLEU)" * (cell.main_bleu.paper_bleu is None)
            in_paper = printed.get(MEASURED_NAMES.get(cell.model, ""))
            bleu = in_paper.number(f"{pair}.paper_bleu") if in_paper else None
            rows.append(Row(f"{cell.label}{score}", "", {"paper": bleu, "here": cell.main_bleu.deciding}))
    return rows


def said(results: Results, rows: Sequence[Row]) -> str:
    """States the result in a sentence, from the rows of `scores`."""
    if not rows:
        return page.NOTHING_RUN
    reached = ", ".join(f"{row.name} {row.values['here']:.1f}" for row in rows)
    printed = [f"{bleu:.1f}" for row in rows if (bleu := row.number("paper")) is not None]
    if not printed:
        return f"Paper BLEU: {reached}."
    other_text = " (on different data)" * is_of_other_text(results)
    return f"Paper BLEU: {reached}. The paper reports {' and '.join(printed)}{other_text}."


def competitors(models: Sequence[Translation]) -> list[Markup]:
    """Plots dev NLL over seconds and over FLOP if several architectures were trained."""
    if len({model.config.architecture for model in models}) < 2:
        return []
    measured = {model.label: [line for line in model.metrics if "dev_nll" in line] for model in models}
    flop = {model.label: model.run.counted_flop / model.run.updates for model in models}
    seconds = [Curve(label, [(line["train_s"], line["dev_nll"]) for line in of]) for label, of in measured.items()]
    operations = [
        Curve(label, [(line["update"] * flop[label], line["dev_nll"]) for line in of]) for label, of in measured.items()
    ]
    return [nll_over("seconds of training", seconds), nll_over("FLOP", operations)]


def tabulate(
    context: Context,
    cells: list[Translation],
    failures: Mapping[str, str] = NONE_FAILED,
    reports: Sequence[CorpusReport] = (),
    command: CommandLine = UNKNOWN,
) -> Table2Artifact:
    """Writes Table 2 with the `cells` that were run; the others show why they failed or that they were not run.

    `failures` maps the labels of failed cells to reasons; `reports` are the corpus reports, one per language pair.
    """
    results = compute(cells, failures)
    rows = scores(results, cells)
    return page.write(
        context,
        Table2Artifact,
        results,
        lead="The paper’s rows, followed by the rows measured here. BLEU is in percent, training cost in FLOP.",
        said=said(results, rows),
        compared=Table("paper BLEU, test set", page.COMPARED, rows) if rows else None,
        pictures=competitors(cells),
        sections=[*page.learning_curves(learning_figures(cells)), *map(page.translations, cells)],
        models=cells,
        reports=reports,
        command=command,
    )
