"""Trains a grid of models: each trial trains and measures one model, as steps of the DAG, which Ray Tune runs.

    unfinished = run_grid(trials, store, layout=profile.grid.training)

The results go to the store as usual: trials share the prepared data, and a trial that failed or was interrupted
continues from its newest checkpoint, in this command or the next.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Artifact
from pipeline.store.artifacts import TrainingRun
from pipeline.store.store import Store
from workflows.engine.dag import Step
from workflows.engine.events import Watcher
from workflows.engine.runner import missing_steps


@dataclass(frozen=True)
class Trial:
    """One model of the grid."""

    name: str
    training: Step[TrainingRun]
    results: tuple[Step[Artifact], ...]
    """The steps to be made for this model; they depend on `training`."""


@dataclass(frozen=True)
class Unfinished:
    """The reason why a trial has no results."""

    state: Literal["failed", "stopped"]
    reason: str


@dataclass(frozen=True)
class Asha:
    """Stops a trial unless its dev perplexity is in the best third of those that got as far.

    It decides at `rung_updates` updates and at 3, 9, ... times as many (Li et al. 2020, "A system for massively
    parallel hyperparameter tuning").
    """

    longest_updates: int
    rung_updates: int


def run_grid(
    trials: Sequence[Trial],
    store: Store,
    watchers: Sequence[Watcher] = (),
    address: str | None = None,
    *,
    layout: TrainingSettings,
    scheduler: Asha | None = None,
    work_of: Callable[[Trial], float] | None = None,
) -> dict[str, Unfinished]:
    """Runs `trials`; returns those that have no results, by name.

    They start in their order, or those with the most work (`work_of`, in any unit) first, so that no long training is
    still running after all others are done.

    As many trials run at once as the cluster has room for, given the training workers in `layout`. The inputs of the
    trainings must be in the store. A trial stopped by the scheduler stays stopped in later calls with a scheduler, and
    continues in calls without one.
    """
    remembered = {trial.name: _stopped_before(store, trial) for trial in trials} if scheduler else {}
    unfinished = {name: stopped for name, stopped in remembered.items() if stopped}
    wanted = [trial for trial in trials if trial.name not in unfinished]
    missing = missing_steps([step for trial in wanted for step in trial.results], store)
    if missing:
        from workflows.engine.tuning import tune_trials  # Ray Tune is slow to import, and often nothing is missing

        to_make = {step.fingerprint for step in missing}
        open_trials = [trial for trial in wanted if any(step.fingerprint in to_make for step in trial.results)]
        if work_of:
            open_trials.sort(key=work_of, reverse=True)
        unfinished |= tune_trials(open_trials, missing, store, watchers, address, layout, scheduler)
    return unfinished


def _stopped_before(store: Store, trial: Trial) -> Unfinished | None:
    """Returns the reason recorded when a scheduler stopped a trial; None if there is none or it is unreadable."""
    try:
        return Unfinished(**store.read_record(stopped_record(trial)))
    except TypeError:
        return None


def stopped_record(trial: Trial) -> str:
    """Returns the name of the record of why a scheduler stopped a trial."""
    return f"stopped/{trial.training.fingerprint}"
