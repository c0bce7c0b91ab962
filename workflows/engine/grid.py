"""The trainings of a grid through Ray Tune: a trial trains one model and measures it, as steps of the DAG.

    unfinished = run_grid(trials, store, layout=profile.grid.training)

Tune decides which models are at work at once, tries again what has failed, and stops bad ones early where asked. What
is made goes to the store as everywhere: trials share the prepared data, and one that failed or was interrupted goes on
from its newest checkpoint, in this command or the next.
"""

import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import ray
from ray import tune
from ray.actor import ActorHandle
from ray.tune.schedulers import ASHAScheduler, TrialScheduler

from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Artifact
from pipeline.store.artifacts import TrainingRun
from pipeline.store.store import Store
from pipeline.training.on_ray import layout_of
from workflows.engine.dag import Step, to_run
from workflows.engine.events import Relay, Watcher
from workflows.engine.runner import missing_steps, submitted, working

RETRIES = 2
"""Of a trial, after Ray Train has given up on its workers; what a user must mend is never tried again."""
POLL_S = 1.0
NOTHING: dict[str, float] = {"memory": 1}
"""What a trial itself reserves, as its steps reserve what they need: one byte, since Tune refuses none at all."""
QUIET = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ctrl-C is the workflow's
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # the new one prints each error even when told to be silent
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
"""Variables that Tune reads."""


@dataclass(frozen=True)
class Trial:
    """One model of the grid."""

    name: str
    training: Step[TrainingRun]
    results: tuple[Step[Artifact], ...]
    """What is wanted of it; `training` is among what these need."""


@dataclass(frozen=True)
class Unfinished:
    """Why a trial has no results."""

    state: Literal["failed", "stopped"]
    reason: str


def asha(longest_updates: int, rung_updates: int) -> TrialScheduler:
    """Stops a trial whose dev perplexity is not in the best third of those that came as far.

    Asked at `rung_updates` updates and at 3, 9, ... times as many (Li et al. 2020, "A system for massively parallel
    hyperparameter tuning").
    """
    return ASHAScheduler(
        time_attr="update",
        metric="dev_perplexity",
        mode="min",
        max_t=longest_updates + 1,  # at this many it would stop a trial before its scores
        grace_period=min(rung_updates, longest_updates),
        reduction_factor=3,
    )


def run_grid(
    trials: Sequence[Trial],
    store: Store,
    watchers: Sequence[Watcher] = (),
    address: str | None = None,
    *,
    layout: TrainingSettings,
    scheduler: TrialScheduler | None = None,
) -> dict[str, Unfinished]:
    """Makes the results of `trials`, in their order; says which have none, by name.

    As many are at work at once as the cluster has room for, with training workers as in `layout`. What the trainings
    need must be in the store. A trial stopped by the scheduler stays so in later calls that have one, and goes on in
    calls without.
    """
    remembered = {trial.name: _stopped_before(store, trial) for trial in trials} if scheduler else {}
    unfinished = {name: stopped for name, stopped in remembered.items() if stopped}
    wanted = [trial for trial in trials if trial.name not in unfinished]
    missing = missing_steps([step for trial in wanted for step in trial.results], store)
    if not missing:
        return unfinished
    lacking = {step.fingerprint for step in missing}
    open_trials = {trial.name: trial for trial in wanted if any(step.fingerprint in lacking for step in trial.results)}
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what failed stands in the table
    with (
        _environment(QUIET),
        working(missing, watchers, address) as relay,
        store.workspace("tune") as tunes_own,
    ):
        trainable = partial(_run_trial, trials=open_trials, store=store, board=relay.board)
        results = tune.Tuner(
            tune.with_resources(trainable, NOTHING),
            param_space={"trial": tune.grid_search(list(open_trials))},
            tune_config=tune.TuneConfig(
                max_concurrent_trials=layout_of(layout).at_once, scheduler=scheduler, reuse_actors=scheduler is None
            ),
            run_config=tune.RunConfig(
                name="grid",
                storage_path=str(tunes_own),
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                callbacks=[_Follower(relay)],
                verbose=0,
            ),
        ).fit()
        relay.fetch()
    # In the order of the grid: a trial that has reported nothing does not know its configuration any more.
    for trial, number in zip(open_trials.values(), range(len(results)), strict=True):
        if to_run(trial.results, store):
            unfinished[trial.name] = _why(results[number], store, trial)
    return unfinished


def _why(result: Any, store: Store, trial: Trial) -> Unfinished:
    metrics = result.metrics or {}
    if result.error or "failed" in metrics:
        told = metrics.get("failed") or str(result.error).strip().split("\n")[-1]
        return Unfinished("failed", told)
    reason = f"by the scheduler after update {metrics['update']}, dev perplexity {metrics['dev_perplexity']:.2f}"
    stopped = Unfinished("stopped", reason)
    store.write_record(_stopped_record(trial), asdict(stopped))
    return stopped


def _stopped_before(store: Store, trial: Trial) -> Unfinished | None:
    """What an earlier call said of a trial that its scheduler stopped; None too where that cannot be read any more."""
    try:
        return Unfinished(**store.read_record(_stopped_record(trial)))
    except TypeError:
        return None


def _stopped_record(trial: Trial) -> str:
    return f"stopped/{trial.training.fingerprint}"


def _run_trial(config: dict[str, Any], trials: dict[str, Trial], store: Store, board: ActorHandle) -> None:
    """A trial, in the process that Tune gives it: submits its steps, reports the dev set's measurements as they come.

    A retried trial reports those before its checkpoint again, so a scheduler sees all of them.
    """
    trial = trials[config["trial"]]
    metrics, reported = store.scratch(trial.training.name) / "metrics.jsonl", 0
    try:
        with submitted(to_run(trial.results, store), store, board) as running:
            while running:
                found, _ = ray.wait(list(running), num_returns=len(running), timeout=POLL_S)
                for line in _measurements(metrics, reported):
                    reported = line["update"]
                    tune.report({"update": reported, "dev_perplexity": line["dev_perplexity"]})
                for reference in found:
                    ray.get(reference)
                    del running[reference]
    except UserError as error:
        tune.report({"failed": str(error)})


def _measurements(metrics: Path, after: int) -> Iterator[dict[str, Any]]:
    """The measurements on the dev set in `metrics.jsonl` that came after an update; none once it is published."""
    try:
        *written, _ = metrics.read_text(encoding="utf-8").split("\n")  # the last line may be half written
    except FileNotFoundError:
        return
    for line in map(json.loads, written):
        if "dev_perplexity" in line and line["update"] > after:
            yield line


class _Follower(tune.Callback):
    """Tells the watchers, in the driver, what the trials' steps post."""

    def __init__(self, relay: Relay) -> None:
        self._relay, self._fetched_s = relay, 0.0

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """After each turn of Tune's loop, many a second."""
        if time.monotonic() - self._fetched_s > POLL_S / 2:
            self._fetched_s = time.monotonic()
            self._relay.fetch()
            self._relay.idle()

    def __getstate__(self) -> dict[str, Any]:
        """Tune stores its callbacks; this one holds the screen."""
        return {}


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Environment variables for the body's time."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
