"""Runs the models of a grid as trials of Ray Tune, one per model (`workflows.engine.models`).

Tune schedules the trials and retries lost ones.
"""

import logging
import os
import time
from functools import partial
from typing import Any

from ray import tune
from ray.actor import ActorHandle

from pipeline.store.store import Store
from workflows.engine.cluster import ON_HEAD, cause_of
from workflows.engine.events import Relay
from workflows.engine.execution import POLL_S
from workflows.engine.models import RETRIES, Results, reason, run_model
from workflows.engine.plan import to_run

QUIET = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the workflow handles ctrl-C
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # the new output prints errors even if silenced
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
"""Environment variables that keep Tune quiet."""


def run_trials(results: Results, at_once: int, store: Store, relay: Relay) -> dict[str, str]:
    """Builds the models in order, `at_once` at a time; returns the failures by model name."""
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # the table lists the failures
    os.environ.update(QUIET)
    follower = _Follower(relay, results)
    with store.workspace("tune") as tune_folder:
        tune.Tuner(
            tune.with_resources(partial(_run_trial, results=results, store=store, board=relay.board), ON_HEAD),
            param_space={"model": tune.grid_search([*results])},
            tune_config=tune.TuneConfig(max_concurrent_trials=at_once, reuse_actors=True),
            run_config=tune.RunConfig(
                name="grid",
                storage_path=str(tune_folder),
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                callbacks=[follower],
                verbose=0,
            ),
        ).fit()
        why = {  # once Tune has stored the errors
            name: trial.last_result.get("failed") or reason(cause_of(trial.get_pickled_error() or trial.get_error()))
            for name, trial in follower.failed.items()
        }
    return {name: why.get(name, "Ray Tune has ended") for name in results if to_run(results[name], store)}


def _run_trial(config: dict[str, Any], results: Results, store: Store, board: ActorHandle) -> None:
    if why := run_model(results[config["model"]], store, board):
        tune.report({"failed": why})


class _Follower(tune.Callback):
    """Forwards the steps' events and the models' failures to the watchers in the driver.

    Tune calls its methods. A trial to be retried has not failed.
    """

    def __init__(self, relay: Relay, results: Results) -> None:
        self._relay, self._results, self._fetched_s = relay, results, 0.0
        self.failed: dict[str, Any] = {}
        """The failed trials by model. In Tune's results, retried trials are out of order."""

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Called after each iteration of Tune's loop, many times per second."""
        if time.monotonic() - self._fetched_s > POLL_S:
            self._fetched_s = time.monotonic()
            self._relay.fetch()
            self._relay.idle()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Called when a trial has ended without an exception."""
        if "failed" in trial.last_result:
            self._failed(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Called when a trial has failed for good."""
        self._failed(trial)

    def _failed(self, trial: Any) -> None:
        name = trial.config["model"]
        self.failed[name] = trial
        self._relay.fetch()
        self._relay.failed(name, self._results[name], trial.last_result.get("failed", ""))

    def __getstate__(self) -> dict[str, Any]:
        """Omits the state when Tune pickles its callbacks, since it includes the console."""
        return {}
