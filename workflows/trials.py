"""Runs the rows of Table 3 as Ray Tune trials (§6.2), each trained with its seeds and measured on the dev set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.settings import AveragingSettings, DecodingSettings, TrainingSettings
from pipeline.store.store import Store
from workflows import stages
from workflows.engine.dag import Imported
from workflows.engine.grid import run_grid
from workflows.engine.runner import Watcher
from workflows.tables import table3
from workflows.tables.measurements import Translation
from workflows.tables.table3_rows import GridRow

count_parameters = Imported("model.flops:count_parameters")

LAST_CHECKPOINT = AveragingSettings(last=1)
"""Table 3 does not average checkpoints (§6.2)."""


@dataclass(frozen=True)
class RowTrial:
    """A training of a row with one seed, and its measurements."""

    name: str
    row: GridRow
    evaluation: Translation


def trials_of(
    text: stages.Prepared,
    chosen_rows: Sequence[GridRow],
    seeds: int,
    decoding: DecodingSettings,
    *,
    base_seeds: int = 1,
    dev_scores: bool = False,
) -> list[RowTrial]:
    """Returns trials that train each row with `seeds` seeds and measure its last checkpoint on the dev set (§6.2).

    Seeds are consecutive, from the training's own on; base has at least `base_seeds` of them. A trial decodes with as
    many workers as it trains with, since other trials run at the same time.
    """
    trials = []
    for row in chosen_rows:
        first, n_seeds = row.training.seed, max(seeds, base_seeds) if row.name == "base" else seeds
        for seed in range(first, first + n_seeds):
            name = f"{row.name} seed {seed}" if n_seeds > 1 else row.name
            settings = row.training.model_copy(update={"seed": seed})
            training = stages.TRAIN(f"train {text.name} {name}", text.dataset, settings)
            trial_decoding = decoding.model_copy(update={"workers": settings.workers})
            evaluation = stages.evaluated(
                text, name, training, LAST_CHECKPOINT, trial_decoding, on_dev=True, with_dev_scores=dev_scores
            )
            trials.append(RowTrial(name, row, replace(evaluation, model=row.name)))  # the table gives the seed itself
    return trials


def rows_of(trials: Sequence[RowTrial], failures: Mapping[str, str]) -> list[table3.RowTrainings]:
    """Returns the table's rows, made of the trials that have results; a row without any states why they failed."""
    by_row: dict[str, list[RowTrial]] = {}
    for trial in trials:
        by_row.setdefault(trial.row.name, []).append(trial)
    rows = []
    for name, row_trials in by_row.items():
        measured = tuple(trial.evaluation for trial in row_trials if trial.name not in failures)
        reasons = [
            failures[trial.name] if len(row_trials) == 1 else f"{trial.name}: {failures[trial.name]}"
            for trial in row_trials
            if trial.name in failures
        ]
        rows.append(table3.RowTrainings(name, row_trials[0].row.difference, measured, "; ".join(reasons)))
    return rows


def train_rows(
    text: stages.Prepared,
    trials: Sequence[RowTrial],
    base: TrainingSettings,
    store: Store,
    address: str | None,
    watchers: Sequence[Watcher],
) -> Mapping[str, str]:
    """Prepares the text, then trains and measures the rows with Ray Tune; returns why some failed, by trial.

    Those with the most work begin first, so that no long training is still running after all others are done. Raises
    UserError if none succeeds.
    """
    results = {trial.name: trial.evaluation.results for trial in trials}
    if not all(step.is_made(store) for of_trial in results.values() for step in of_trial):
        work = {t.name: count_parameters(t.row.training.model) * t.row.training.updates for t in trials}
        results = {name: results[name] for name in sorted(work, key=work.__getitem__, reverse=True)}
    return run_grid(results, store, watchers, address, inputs=[text.dev, text.dataset], layout=base)
