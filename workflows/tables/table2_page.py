"""Writes Table 2 with its report, one HTML file: the last stage of the workflow."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from markupsafe import Markup

from pipeline.store.artifact import Context
from workflows import paper
from workflows.command_line import UNKNOWN, CommandLine
from workflows.tables import page
from workflows.tables.corpus import CorpusReport
from workflows.tables.learning import TITLES, learning_figures
from workflows.tables.measurements import Translation
from workflows.tables.plots import Curve, curves
from workflows.tables.table import Results, Row, Table
from workflows.tables.table2 import (
    MEASURED_NAMES,
    NONE_FAILED,
    WORD_BY_WORD,
    Table2Artifact,
    baselines,
    by_cell,
    compute,
)

PRINTED = {row.name: row.bleu for row in paper.TABLE_2}


def scores(measured: Sequence[Translation]) -> list[Row]:
    """Returns BLEU of each model beside the paper's, and BLEU of word-by-word substitution."""
    words, rows, pair = baselines(measured), [], ""
    for (of_pair, model), cells in by_cell(measured).items():
        if of_pair != pair and of_pair in words:
            rows.append(Row(f"{of_pair.upper()} {WORD_BY_WORD}", "", {"here": words[of_pair].deciding}))
        pair = of_pair
        score = " (sacreBLEU)" * (cells[0].main_bleu.paper_bleu is None)
        bleu = PRINTED.get(MEASURED_NAMES.get(model, ""), {}).get(pair)
        here = fmean(cell.main_bleu.deciding for cell in cells)
        rows.append(Row(f"{cells[0].label}{score}", "", {"paper": float(bleu) if bleu else None, "here": here}))
    return rows


def said(rows: Sequence[Row]) -> str:
    """States the result in a sentence, from the rows of `scores`."""
    reached = ", ".join(f"{row.name} {row.values['here']:.1f}" for row in rows)
    return f"Paper BLEU: {reached}." if rows else page.NOTHING_RUN


def beside(results: Results, rows: Sequence[Row]) -> str:
    """States the paper's results for the rows of `scores`."""
    printed = [f"{bleu:.1f}" for row in rows if (bleu := row.number("paper")) is not None]
    other = " (on different data)" * any(each.what in ("training data", "test set") for each in results.differences)
    return f"The paper reports {' and '.join(printed)}{other}." if printed else ""


def over_budgets(models: Sequence[Translation]) -> list[Markup]:
    """Plots dev NLL over seconds and FLOP, and scored checkpoints' BLEU over seconds, if there are several models."""
    if len({model.model for model in models}) < 2:
        return []
    seconds, operations, scored = [], [], []
    for model in models:
        over_seconds = [(line["train_s"], line["dev_nll"]) for line in model.metrics if "dev_nll" in line]
        seconds.append(Curve(model.label, over_seconds))
        operations.append(Curve(model.label, model.nll_over_flop()))
        if series := model.series().get("dev_sacrebleu"):
            after = [(line["update"], line["train_s"]) for line in model.metrics]
            reached_s = {update: next(s for at, s in after if at >= update) for update in series}
            scored.append(Curve(model.label, [(reached_s[update], bleu) for update, bleu in series.items()]))
    nll, passed = "dev NLL, nats per token", "seconds of training"
    drawings = [
        curves(nll, passed, seconds, "dev-nll-over-seconds-of-training", cut=True),
        curves(nll, "FLOP", operations, "dev-nll-over-flop", cut=True),
    ]
    if scored:
        drawings.append(curves(TITLES["dev_sacrebleu"], passed, scored, "dev-sacrebleu-over-seconds-of-training"))
    return drawings


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
    rows = scores(cells)
    firsts = [first for first, *_ in by_cell(cells).values()]
    return page.write(
        context,
        Table2Artifact,
        results,
        lead="The paper’s rows, followed by the rows measured here. BLEU is in percent, training cost in FLOP.",
        said=said(rows),
        beside=beside(results, rows),
        compared=Table("paper BLEU, test set", page.COMPARED, rows) if rows else None,
        pictures=over_budgets(cells),
        sections=[*page.learning_curves(learning_figures(cells)), *map(page.translations, firsts)],
        models=cells,
        reports=reports,
        command=command,
    )
