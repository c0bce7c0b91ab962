"""Runs the models of a grid as trials of Ray Tune, which build their models' steps (`workflows.engine.schedule`).

Tune schedules the trials and retries lost ones.
"""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import ray
from ray import tune
from ray.tune.progress_reporter import TrialProgressCallback

from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from workflows.engine.cluster import ON_HEAD, cause_of
from workflows.engine.dag import Step
from workflows.engine.events import Relay
from workflows.engine.execution import POLL_S
from workflows.engine.plan import to_run

QUIET = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the workflow handles ctrl-C
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # the new output prints errors even if silenced
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
"""Environment variables that keep Tune quiet."""


def run_trials(
    results: Mapping[str, Sequence[Step[Artifact]]], at_once: int, store: Store, relay: Relay, build: "partial[None]"
) -> None:
    """Builds the models in order, `at_once` at a time. `relay.failures` has those that failed."""
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # the table lists the failures
    os.environ.update(QUIET)
    with store.workspace("tune") as tune_folder:
        trials = tune.Tuner(
            tune.with_resources(tune.with_parameters(_run_trial, results=results, build=build), ON_HEAD),
            param_space={"model": tune.grid_search([*results])},
            tune_config=tune.TuneConfig(max_concurrent_trials=at_once, reuse_actors=True),
            run_config=tune.RunConfig(
                name="grid",
                storage_path=str(tune_folder),
                failure_config=tune.FailureConfig(max_failures=build.keywords["retries"]),
                callbacks=[_Follower(relay)],
                verbose=0,
            ),
        ).fit()
    relay.fetch()
    for trial in [trials[i] for i in range(len(trials))]:
        if trial.error and trial.config:
            relay.failed(trial.config["model"], str(cause_of(trial.error)).strip().split("\n")[-1])
    for name in results:
        if to_run(results[name], store):
            relay.failed(name, "Ray Tune has ended")


def _run_trial(config: dict[str, Any], results: Mapping[str, Sequence[Step[Artifact]]], build: "partial[None]") -> None:
    name = config["model"]

    def failed(model: str, why: str) -> None:
        ray.get(build.keywords["board"].post.remote(model, {"failed": why}))

    build(to_run(results[name], build.keywords["store"]), models={name: results[name]}, failed=failed)


class _Follower(TrialProgressCallback):
    """Forwards the steps' events to the watchers in the driver, many times per second.

    It takes the place of Tune's own callback of this class, which would print a line for each trial.
    """

    def __init__(self, relay: Relay) -> None:
        self._relay, self._fetched_s = relay, 0.0

    def log_result(self, trial: Any, result: Any, error: bool = False) -> None:
        """Prints nothing."""

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Prints nothing."""

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Called after each iteration of Tune's loop."""
        if time.monotonic() - self._fetched_s > POLL_S:
            self._fetched_s = time.monotonic()
            self._relay.follow()

    def __getstate__(self) -> dict[str, Any]:
        """Omits the state when Tune pickles its callbacks, since it includes the console."""
        return {}
