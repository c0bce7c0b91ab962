"""Runs the trials of a grid (`workflows.engine.grid`) in Ray Tune.

Tune decides which models are trained concurrently, retries failed trials, and stops bad ones early if asked to.
"""

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

import ray
from ray import tune
from ray.actor import ActorHandle
from ray.tune.schedulers import ASHAScheduler, TrialScheduler

from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from pipeline.training.metrics import METRICS
from pipeline.training.on_ray import layout_of
from workflows.engine.cluster import ON_HEAD
from workflows.engine.dag import Step, to_run
from workflows.engine.events import Watcher
from workflows.engine.execution import submitted, working
from workflows.engine.grid import Asha, Trial, Unfinished, stopped_record
from workflows.engine.relay import Relay

RETRIES = 2
"""Retries of a trial after Ray Train has given up on its workers; an error the user must fix is never retried."""
POLL_S = 1.0
QUIET = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the workflow handles ctrl-C
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # the new output prints each error even when set to be silent
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
"""Environment variables that keep Tune quiet."""


def tune_trials(
    trials: Sequence[Trial],
    missing: Sequence[Step[Artifact]],
    store: Store,
    watchers: Sequence[Watcher],
    address: str | None,
    layout: TrainingSettings,
    scheduler: Asha | None,
) -> dict[str, Unfinished]:
    """Runs `trials`, which need the steps `missing`; returns those that have no results, by name (`run_grid`)."""
    open_trials = {trial.name: trial for trial in trials}
    unfinished = {}
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # the table lists the failures
    with (
        _environment(QUIET),
        working(missing, watchers, address) as relay,
        store.workspace("tune") as tune_folder,
    ):
        trainable = partial(_run_trial, trials=open_trials, store=store, board=relay.board)
        results = tune.Tuner(
            tune.with_resources(trainable, ON_HEAD),
            param_space={"trial": tune.grid_search(list(open_trials))},
            tune_config=tune.TuneConfig(
                max_concurrent_trials=layout_of(layout).at_once,
                scheduler=_asha(scheduler) if scheduler else None,
                reuse_actors=scheduler is None,
            ),
            run_config=tune.RunConfig(
                name="grid",
                storage_path=str(tune_folder),
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                callbacks=[_Follower(relay, open_trials, store)],
                verbose=0,
            ),
        ).fit()
        relay.fetch()
    # Matched by their order, because a trial that has reported nothing no longer knows its configuration.
    for trial, number in zip(open_trials.values(), range(len(results)), strict=True):
        if to_run(trial.results, store):
            unfinished[trial.name] = _why(results[number], store, trial)
    return unfinished


def _asha(asked: Asha) -> TrialScheduler:
    return ASHAScheduler(
        time_attr="update",
        metric="dev_perplexity",
        mode="min",
        max_t=asked.longest_updates + 1,  # reaching max_t would stop a trial before it is scored
        grace_period=min(asked.rung_updates, asked.longest_updates),
        reduction_factor=3,
    )


def _why(result: Any, store: Store, trial: Trial) -> Unfinished:
    metrics = result.metrics or {}
    if result.error or "failed" in metrics:
        return Unfinished("failed", metrics.get("failed") or str(result.error).strip().split("\n")[-1])
    reason = f"by the scheduler after update {metrics['update']}, dev perplexity {metrics['dev_perplexity']:.2f}"
    stopped = Unfinished("stopped", reason)
    store.write_record(stopped_record(trial), asdict(stopped))
    return stopped


def _run_trial(config: dict[str, Any], trials: dict[str, Trial], store: Store, board: ActorHandle) -> None:
    """Runs a trial in the process that Tune gives it: submits its steps and reports dev set measurements as they come.

    A retried trial also reports the measurements from before its checkpoint, so a scheduler sees all of them.
    """
    trial = trials[config["trial"]]
    reported = 0
    try:
        with submitted(to_run(trial.results, store), store, board) as running:
            while running:
                done, _ = ray.wait(list(running), num_returns=len(running), timeout=POLL_S)
                for line in _measurements(store, trial.training.name, reported):
                    reported = line["update"]
                    tune.report({"update": reported, "dev_perplexity": line["dev_perplexity"]})
                for reference in done:
                    ray.get(reference)
                    del running[reference]
    except UserError as error:
        tune.report({"failed": str(error)})


def _measurements(store: Store, training: str, after: int) -> Iterator[dict[str, Any]]:
    """Yields the dev set measurements in `metrics.jsonl` after update `after`; none once the training is published."""
    if store.find(training):
        return
    *complete, _ = (store.peek(training, METRICS) or "").split("\n")  # the last line may be incomplete
    for line in map(json.loads, complete):
        if "dev_perplexity" in line and line["update"] > after:
            yield line


class _Follower(tune.Callback):
    """Passes the events of the trials' steps on to the watchers in the driver, and which trials ended without results.

    Tune calls its methods; a trial that it will try again has not ended.
    """

    def __init__(self, relay: Relay, trials: Mapping[str, Trial], store: Store) -> None:
        self._relay, self._trials, self._store, self._fetched_s = relay, trials, store, 0.0

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Runs after each iteration of Tune's loop, many times per second."""
        if time.monotonic() - self._fetched_s > POLL_S / 2:
            self._fetched_s = time.monotonic()
            self._relay.fetch()
            self._relay.idle()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Runs when a trial has ended by itself or was stopped by the scheduler."""
        self._ended(trial, "failed" if "failed" in trial.last_result else "stopped")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Runs when a trial has failed for good."""
        self._ended(trial, "failed")

    def _ended(self, tune_trial: Any, state: Literal["failed", "stopped"]) -> None:
        self._relay.fetch()
        trial = self._trials[tune_trial.config["trial"]]
        if any(self._store.find(step.name) is None for step in trial.results):
            self._relay.given_up(trial.training, state)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the state out when Tune pickles its callbacks, since it includes the screen."""
        return {}


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Sets environment variables while the body runs."""
    previous = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
