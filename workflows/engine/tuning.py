"""Trains the models of a grid (`workflows.engine.grid.run_grid`) as trials of Ray Tune.

Tune decides which models are trained concurrently, and retries those that fail.
"""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import ray
from ray import tune
from ray.actor import ActorHandle

from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from pipeline.training.on_ray import layout_of
from workflows.engine.cluster import ON_HEAD, cause_of
from workflows.engine.dag import Step, to_run
from workflows.engine.execution import POLL_S, LostProcessError, Relay, submitted, working
from workflows.engine.runner import Watcher

RETRIES = 2
"""Retries of a trial whose process or node was lost, or that raised; an error the user must fix is never retried."""
QUIET = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the workflow handles ctrl-C
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # the new output prints each error even when set to be silent
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
"""Environment variables that keep Tune quiet."""


def tune_models(
    models: Mapping[str, Sequence[Step[Artifact]]],
    missing: Sequence[Step[Artifact]],
    store: Store,
    watchers: Sequence[Watcher],
    address: str | None,
    layout: TrainingSettings,
) -> dict[str, str]:
    """Makes the results of `models`, which need the steps `missing`; returns why some failed, by name (`run_grid`)."""
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # the table lists the failures
    os.environ.update(QUIET)
    with (
        working(missing, watchers, address) as relay,
        store.workspace("tune") as tune_folder,
    ):
        follower = _Follower(relay, models)
        tune.Tuner(
            tune.with_resources(partial(_run_trial, models=models, store=store, board=relay.board), ON_HEAD),
            param_space={"model": tune.grid_search([*models])},
            tune_config=tune.TuneConfig(max_concurrent_trials=layout_of(layout).at_once, reuse_actors=True),
            run_config=tune.RunConfig(
                name="grid",
                storage_path=str(tune_folder),
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                callbacks=[follower],
                verbose=0,
            ),
        ).fit()
        relay.fetch()
        reasons = {name: _reason(trial) for name, trial in follower.failed.items()}
    return {name: reasons.get(name, "Ray Tune has ended") for name in models if to_run(models[name], store)}


def _run_trial(
    config: dict[str, Any], models: Mapping[str, Sequence[Step[Artifact]]], store: Store, board: ActorHandle
) -> None:
    """Runs a trial in the process that Tune gives it: submits the steps of its model, and waits for them."""
    try:
        with submitted([*to_run(models[config["model"]], store)], store, board) as running:
            ray.get([*running])
    except LostProcessError:
        raise  # Tune tries again
    except (UserError, OSError) as error:
        if not (isinstance(error, UserError) or error.filename):
            raise
        tune.report({"failed": str(error)})  # the user must mend it


def _reason(trial: Any) -> str:
    """Returns why a trial has failed, once Tune has written its error."""
    error = trial.get_pickled_error() or trial.get_error()
    return trial.last_result.get("failed") or str(cause_of(error)).strip().split("\n")[-1]


class _Follower(tune.Callback):
    """Passes the events of the trials' steps on to the watchers in the driver, and which models have failed.

    Tune calls its methods; a trial that it will try again has not ended.
    """

    def __init__(self, relay: Relay, models: Mapping[str, Sequence[Step[Artifact]]]) -> None:
        self._relay, self._models, self._fetched_s = relay, models, 0.0
        self.failed: dict[str, Any] = {}
        """The failed trials by model. In Tune's results one that was tried again is no longer in its place."""

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Runs after each iteration of Tune's loop, many times per second."""
        if time.monotonic() - self._fetched_s > POLL_S:
            self._fetched_s = time.monotonic()
            self._relay.fetch()
            self._relay.idle()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Runs when a trial has ended by itself."""
        if "failed" in trial.last_result:
            self._failed(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Runs when a trial has failed for good."""
        self._failed(trial)

    def _failed(self, trial: Any) -> None:
        self.failed[trial.config["model"]] = trial
        self._relay.fetch()
        self._relay.failed(self._models[trial.config["model"]])

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the state out when Tune pickles its callbacks, since it includes the screen."""
        return {}
