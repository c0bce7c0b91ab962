"""The rows of Table 3 as trials of Ray Tune (§6.2): each trained with some seeds and measured on the dev set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ray.tune.schedulers import TrialScheduler

from model.parameters import count
from pipeline.errors import UserError
from pipeline.settings import AveragingSettings, DecodingSettings, TrainingSettings
from pipeline.store.store import Store
from workflows import stages
from workflows.engine.dag import ArtifactOf, StepBundle
from workflows.engine.events import Watcher
from workflows.engine.grid import Trial, Unfinished, run_grid
from workflows.engine.runner import run
from workflows.tables import table3
from workflows.tables.table3_rows import GridRow

LAST_CHECKPOINT = AveragingSettings(last=1)
"""Table 3 averages none (§6.2)."""


@dataclass(frozen=True)
class RowTrial:
    """A training of a row with one seed, and what is measured of it."""

    name: str
    row: GridRow
    evaluation: stages.Evaluation

    @property
    def trial(self) -> Trial:
        """What Ray Tune runs."""
        evaluation = self.evaluation
        return Trial(self.name, evaluation.training, (evaluation.scores, evaluation.perplexity, evaluation.cost))


@dataclass(frozen=True)
class RowSteps(StepBundle):
    """A row of the table, as steps; its stage receives `table3.RowInputs` for it."""

    name: str
    row: GridRow
    trainings: tuple[stages.Evaluation, ...]
    state: Literal["measured", "failed", "stopped"]
    reason: str

    def resolved(self, artifact_of: ArtifactOf) -> table3.RowInputs:
        """The same with the artifacts in place of the steps."""
        trainings = tuple(evaluation.resolved(artifact_of) for evaluation in self.trainings)
        return table3.RowInputs(self.name, self.row.difference, trainings, self.state, self.reason)


def trials_of(
    text: stages.Prepared, chosen_rows: Sequence[GridRow], seeds: int, decoding: DecodingSettings
) -> list[RowTrial]:
    """Each row trained with `seeds` seeds and measured on the dev set: last checkpoint, beam search (§6.2).

    A trial decodes with as many workers as it trains with, since others run beside it.
    """
    trials = []
    for row in chosen_rows:
        for seed in range(1, seeds + 1):
            name = f"{row.name} seed {seed}" if seeds > 1 else row.name
            settings = row.training.model_copy(update={"seed": seed}) if seeds > 1 else row.training
            training = stages.TRAIN(f"train {text.pair} {name}", text.dataset, settings)
            beside = decoding.model_copy(update={"workers": settings.workers})
            evaluation = stages.evaluated(text, name, training, LAST_CHECKPOINT, beside, split=table3.SPLIT)
            trials.append(RowTrial(name, row, evaluation))
    return trials


def rows_of(trials: Sequence[RowTrial], unfinished: Mapping[str, Unfinished]) -> list[RowSteps]:
    """The table's rows, from the trials that have results; for a row that has none, why."""
    by_row: dict[str, list[RowTrial]] = {}
    for trial in trials:
        by_row.setdefault(trial.row.name, []).append(trial)
    steps = []
    for name, of_row in by_row.items():
        without = {one.name: unfinished[one.name] for one in of_row if one.name in unfinished}
        reason = "; ".join(
            why.reason if len(of_row) == 1 else f"{trial}: {why.reason}" for trial, why in without.items()
        )
        measured = tuple(one.evaluation for one in of_row if one.name not in unfinished)
        state: Literal["measured", "failed", "stopped"] = "measured" if measured else next(iter(without.values())).state
        steps.append(RowSteps(name, of_row[0].row, measured, state, reason))
    return steps


def train_rows(
    text: stages.Prepared,
    trials: Sequence[RowTrial],
    base: TrainingSettings,
    scheduler: TrialScheduler | None,
    store: Store,
    address: str | None,
    watchers: Sequence[Watcher],
) -> Mapping[str, Unfinished]:
    """Prepares the text, then trains and measures the rows through Ray Tune. Raises UserError where none succeeds."""
    run([text.corpus, text.dataset], store, watchers, address)
    # The longest first, so that no long training starts when all others are done.
    ordered = sorted(trials, key=lambda one: count(one.row.training.model) * one.row.training.updates, reverse=True)
    unfinished = run_grid(
        [one.trial for one in ordered],
        store,
        watchers,
        address,
        layout=base,
        scheduler=scheduler,
    )
    if len(unfinished) == len(trials):
        first = trials[0].name
        raise UserError(f"no row was trained; {first} {unfinished[first].state}: {unfinished[first].reason}")
    return unfinished
