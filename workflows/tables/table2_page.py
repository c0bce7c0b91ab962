"""Writes Table 2 with its report, one HTML file: the last stage of the workflow."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from pipeline.store.artifact import Context
from workflows.command_line import UNKNOWN, CommandLine
from workflows.tables import page
from workflows.tables.corpus import CorpusReport
from workflows.tables.learning import TITLES, learning_figures
from workflows.tables.measurements import Translation
from workflows.tables.plots import Curve, curves
from workflows.tables.table2 import (
    NONE_FAILED,
    SCORES,
    Table2Artifact,
    by_cell,
    compute,
)


def said(metrics: Mapping[str, float]) -> str:
    """States the table's metrics in a sentence."""
    reached = []
    for score in SCORES.values():
        if of_score := [name for name in metrics if name.startswith(score)]:
            listed = (f"{name.removeprefix(score)} {metrics[name]:.1f}" for name in of_score)
            reached.append(f"{score}:{','.join(listed)}")
    return f"Measured {'; '.join(reached)}." if reached else page.NOTHING_RUN


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
    firsts = [first for first, *_ in by_cell(cells).values()]
    return page.write(
        context,
        Table2Artifact,
        results,
        lead="The paper’s rows, followed by the rows measured here. BLEU is in percent, training cost in FLOP.",
        said=said(results.metrics),
        sections=[
            page.learning_curves([*over_budgets(cells), *learning_figures(cells)]),
            *map(page.translations, firsts),
        ],
        models=cells,
        reports=reports,
        command=command,
    )
