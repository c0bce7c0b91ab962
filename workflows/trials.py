"""Runs the rows of Table 3 as Ray Tune trials (§6.2), each trained with its seeds and measured on the dev set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pipeline.settings import AveragingSettings, DecodingSettings, TrainingSettings
from pipeline.store.store import Store
from workflows import stages
from workflows.engine.dag import Imported, to_step
from workflows.engine.events import Watcher
from workflows.engine.grid import Asha, Trial, Unfinished
from workflows.engine.runner import run_grid
from workflows.tables import table3
from workflows.tables.measurements import Translation
from workflows.tables.table3_rows import GridRow

count_parameters = Imported("model.parameters:count")

LAST_CHECKPOINT = AveragingSettings(last=1)
"""Table 3 does not average checkpoints (§6.2)."""


@dataclass(frozen=True)
class RowTrial:
    """A training of a row with one seed, and its measurements."""

    name: str
    row: GridRow
    evaluation: Translation

    @property
    def trial(self) -> Trial:
        """The trial that Ray Tune runs."""
        return Trial(self.name, to_step(self.evaluation.training), self.evaluation.results)


def trials_of(
    text: stages.Prepared,
    chosen_rows: Sequence[GridRow],
    seeds: int,
    decoding: DecodingSettings,
    *,
    base_seeds: int = 1,
    dev_bleu: bool = False,
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
            training = stages.TRAIN(f"train {text.pair} {name}", text.dataset, settings)
            own_decoding = decoding.model_copy(update={"workers": settings.workers})
            evaluation = stages.evaluated(
                text, name, training, LAST_CHECKPOINT, own_decoding, split=table3.SPLIT, with_dev_bleu=dev_bleu
            )
            trials.append(RowTrial(name, row, replace(evaluation, model=row.name)))  # the table gives the seed itself
    return trials


def rows_of(trials: Sequence[RowTrial], unfinished: Mapping[str, Unfinished]) -> list[table3.RowInputs]:
    """Returns the table's rows, made of the trials that have results; a row without any states the reason."""
    by_row: dict[str, list[RowTrial]] = {}
    for trial in trials:
        by_row.setdefault(trial.row.name, []).append(trial)
    rows = []
    for name, row_trials in by_row.items():
        without = {trial.name: unfinished[trial.name] for trial in row_trials if trial.name in unfinished}
        reason = "; ".join(
            why.reason if len(row_trials) == 1 else f"{trial_name}: {why.reason}" for trial_name, why in without.items()
        )
        measured = tuple(trial.evaluation for trial in row_trials if trial.name not in unfinished)
        state: Literal["measured", "failed", "stopped"] = "measured" if measured else next(iter(without.values())).state
        rows.append(table3.RowInputs(name, row_trials[0].row.difference, measured, state, reason))
    return rows


def train_rows(
    text: stages.Prepared,
    trials: Sequence[RowTrial],
    base: TrainingSettings,
    scheduler: Asha | None,
    store: Store,
    address: str | None,
    watchers: Sequence[Watcher],
) -> Mapping[str, Unfinished]:
    """Prepares the text, then trains and measures the rows with Ray Tune. Raises UserError if none succeeds."""
    settings = {one.name: one.row.training for one in trials}
    return run_grid(
        [one.trial for one in trials],
        store,
        watchers,
        address,
        inputs=[text.corpus, text.dataset],
        layout=base,
        scheduler=scheduler,
        work_of=lambda trial: _work(settings[trial.name]),
    )


def _work(training: TrainingSettings) -> int:
    n_parameters: int = count_parameters(training.model)
    return n_parameters * training.updates
