"""Updates a workflow's MLflow runs from the store: a parent run, and a child run per model.

The store has all data that MLflow shows, so a lost server only causes a warning. Missing data is sent when the workflow
ends, or by the same command later.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.store.artifacts import METRICS, TrainingRun, read_metrics_line
from pipeline.store.store import Store
from workflows.engine.dag import Step, to_artifact, to_step
from workflows.engine.runner import Watcher
from workflows.reports.corpus import CorpusReport
from workflows.reports.corpus_text import metrics
from workflows.tables.measurements import TrainedModel
from workflows.tracking.addresses import sqlite_file
from workflows.tracking.lineage import measured_identity, settings_of, shared
from workflows.tracking.models import keep, register, registered_name
from workflows.tracking.tracker import (
    MEASURED_TAG,
    SENT_TAG,
    TRAINING_TAG,
    WORKFLOW_TAG,
    Status,
    Tracker,
)

logger = logging.getLogger(__name__)

LIVE_S = 5.0
"""Seconds between uploads of the metrics of active runs."""


@dataclass(frozen=True)
class Workflow:
    """A workflow in MLflow: a parent run, and a child run per model."""

    fingerprint: str
    """The fingerprint of the table's step."""
    profile: str
    params: Mapping[str, Any]
    """Parameters of the parent run, beyond those that all children share."""
    models: Mapping[str, TrainedModel]
    """By name."""
    is_served: bool
    """Whether the models' weights are logged, too, in a form that MLflow can serve."""


class MlflowWatcher(Watcher):
    """Sends curves during training, a model's results as soon as it is measured, and the rest in `finish`.

    Before `finish`, a thread sends in order, so that an upload of hundreds of MB delays nothing. A later call raises
    the thread's errors.
    """

    def __init__(self, tracker: Tracker, workflow: Workflow, store: Store) -> None:
        """Opens the runs. Raises UserError if the address or the password is wrong."""
        self._tracker, self._workflow, self._store = tracker, workflow, store
        self._parent = ""
        self._runs: dict[str, str] = {}
        """The ids of open runs by model name."""
        self._is_open = False
        """Whether all runs were opened."""
        self._to_come: set[str] = set()
        """Fingerprints of the steps still to come."""
        self._news: set[str] = set()
        """Names of the models with new metrics since the last upload."""
        self._looked_s = 0.0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mlflow")
        self._sending: list[Future[None]] = []
        self._models: dict[str, str] = {}
        """Model names by the identity of their measurements; models with the same identity share one run."""
        for name, model in workflow.models.items():
            self._models.setdefault(measured_identity(model), name)
        self._is_parent_sent = tracker.has_all({workflow.fingerprint, *self._models})
        if not self._is_parent_sent:
            tracker.attempt(self._open)

    def begin(self, steps: Collection[Step[Artifact]], cached: Sequence[Step[Artifact]]) -> None:
        """Sends models that are already finished."""
        if steps:
            self._later(self._send_measured, {step.fingerprint for step in steps})

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Notes new metrics of a run."""
        if "metrics" in event:
            models = self._workflow.models.items()
            self._news |= {name for name, model in models if _training(model).fingerprint == step.fingerprint}

    def idle(self) -> None:
        """Sends new metrics every `LIVE_S` seconds."""
        if self._news and time.monotonic() - self._looked_s > LIVE_S and all(each.done() for each in self._sending):
            self._later(self._send_news, frozenset(self._news))
            self._news.clear()
            self._looked_s = time.monotonic()

    def finished(self, step: Step[Artifact], summary: str) -> None:
        """Sends models whose measurements are now complete."""
        self._later(self._send_measured, set(), step.fingerprint)

    def failed(self, name: str, results: Sequence[Step[Artifact]], why: str) -> None:
        """Sends the model's curve and closes its run."""
        self._later(self._close_failed, name)

    def finish(
        self,
        table: Artifact,
        main_metrics: Mapping[str, float],
        reports: Mapping[str, CorpusReport],
        failures: Collection[str],
    ) -> None:
        """Sends all missing data of the models, the corpus reports and the table.

        If MLflow did not answer before, tries once more. Raises UserError for a missing or damaged file.
        """
        self._thread.shutdown()
        for each in self._sending:
            each.result()
        if self._tracker.has_warned:
            self._tracker.is_away = False
            self._runs.clear()
            if not self._tracker.attempt(self._open):
                return
        all_sent = True
        if gone := {name for name in self._runs if not self._is_stored(name)}.difference(failures):
            logger.warning("MLflow lacks results of %s that the store no longer has", ", ".join(sorted(gone)))
            failures = {*failures, *gone}
        for name in [*self._runs]:
            if name in failures:
                self._close_failed(name)
            else:
                all_sent &= self._send(name)
        if not all_sent or self._is_parent_sent:
            return
        tracker, workflow, parent = self._tracker, self._workflow, self._parent

        def send() -> None:
            for name, report in reports.items():
                tracker.results(parent, metrics(report.load(), name))
                tracker.client.log_artifacts(parent, str(report.folder), f"corpus-{name}")
            tracker.results(parent, main_metrics)
            tracker.client.log_artifacts(parent, str(table.folder))
            tracker.end(parent, "FINISHED", "" if failures else workflow.fingerprint)

        tracker.attempt(send)

    def close(self, status: Status) -> None:
        """Closes all open runs after an error. Sends queued data first, unless the user stopped the workflow."""
        self._thread.shutdown(cancel_futures=status == "KILLED")
        for run in filter(None, [*self._runs.values(), "" if self._is_parent_sent else self._parent]):
            self._tracker.attempt(partial(self._tracker.end, run, status))

    def _open(self) -> None:
        """Opens the runs of the workflow and its models, except complete ones."""
        from mlflow.utils.git_utils import get_git_commit

        tracker, workflow = self._tracker, self._workflow
        source = {"mlflow.source.name": f"workflows.reproduce_{tracker.experiment}", "mlflow.source.type": "LOCAL"}
        if commit := get_git_commit(__file__):
            source["mlflow.source.git.commit"] = commit
        settings = {name: settings_of(model) for name, model in workflow.models.items()}
        params = {**shared([*settings.values()]), **workflow.params}
        title = f"{tracker.experiment} {workflow.profile}"
        parent = tracker.open({WORKFLOW_TAG: workflow.fingerprint}, title, params, source)
        self._parent, self._is_parent_sent = parent.info.run_id, SENT_TAG in parent.data.tags
        for measured, name in self._models.items():
            model = workflow.models[name]
            tags = {**source, **self._tags(model), TRAINING_TAG: _training(model).fingerprint}
            run = tracker.open({MEASURED_TAG: measured}, name, settings[name], tags, parent)
            if SENT_TAG not in run.data.tags:
                self._runs[name] = run.info.run_id
        self._is_open = True

    def _tags(self, model: TrainedModel) -> dict[str, str]:
        return {"pair": model.pair, "model": model.model, "profile": self._workflow.profile}

    def _later(self, send: Callable[..., None], *arguments: Any) -> None:
        """Queues an upload; raises any error of the thread since the last call."""
        self._sending = [each for each in self._sending if not each.done() or each.result()]  # None, or raises
        self._sending.append(self._thread.submit(send, *arguments))

    def _send_measured(self, to_come: set[str], finished: str = "") -> None:
        """Sends measured models, given the fingerprints of steps to come, and of the step just finished."""
        self._to_come = (self._to_come | to_come) - {finished}
        for name in [*self._runs]:
            steps = {step.fingerprint for step in self._workflow.models[name].steps}
            if steps.isdisjoint(self._to_come) and self._is_stored(name):
                with suppress(UserError):  # damaged artifacts are rebuilt for the table; then the run is closed
                    self._send(name)

    def _send(self, name: str) -> bool:
        """Sends a model's missing results and ends its run; returns whether that succeeded.

        Raises UserError for a missing or damaged file.
        """
        run, tracker, tags = self._runs[name], self._tracker, self._tags(self._workflow.models[name])
        model = self._workflow.models[name].published(self._store)
        training = to_artifact(model.training)

        def send() -> None:
            ended_s = datetime.fromisoformat(training.manifest["started"]).timestamp() + training.manifest["seconds"]
            tracker.curves(run, model.metrics, ended_s)
            tracker.results(run, model.final_metrics(), model.series())
            last, search = model.run.segments[-1], model.decoding.settings
            used = {
                "dtype": last.dtype,
                "device_name": last.device_names,
                "devices": last.workers,
                "threads": last.threads,
                "beam_size": search.beam_size,
                "length_penalty": search.length_penalty,
                "decoding_dtype": model.decoding.dtype,
            }
            tracker.tags(run, {f"used.{name}": str(value) for name, value in used.items()})
            tracker.client.log_text(run, model.samples_text() + "\n", "samples.txt")
            has_weights = self._workflow.is_served and self._has_weights(name)
            if has_weights:
                model_id = keep(tracker.client, tracker.experiment_id, run, to_artifact(model.checkpoint), self._store)
                register(tracker.client, registered_name(name, model.pair), model_id, run, tags)
            has_all = has_weights or not self._workflow.is_served
            tracker.end(run, "FINISHED", measured_identity(self._workflow.models[name]) if has_all else "")

        if is_sent := tracker.attempt(send):
            del self._runs[name]
        return is_sent

    def _is_stored(self, name: str) -> bool:
        return all(self._store.find(step.name) for step in self._workflow.models[name].steps)

    def _has_weights(self, name: str) -> bool:
        """Whether there are weights to send; to a SQLite file, only weights on this machine are sent."""
        return not sqlite_file(self._tracker.uri) or self._store.has(
            to_step(self._workflow.models[name].checkpoint).name
        )

    def _send_news(self, names: Collection[str]) -> None:
        if not self._is_open:  # the server was away at the start
            with suppress(UserError):  # `finish` raises it: a wrong address must not stop a running workflow
                self._tracker.attempt(self._open)
        for name in self._runs.keys() & names:
            self._tracker.attempt(partial(self._send_written, name))

    def _close_failed(self, name: str) -> None:
        if name in self._runs:
            self._tracker.attempt(partial(self._send_written, name))
            self._tracker.attempt(partial(self._tracker.end, self._runs[name], "FAILED"))

    def _send_written(self, name: str) -> None:
        """Sends the metrics that a run has written so far."""
        text = self._store.peek(_training(self._workflow.models[name]).name, METRICS) or ""
        lines = map(read_metrics_line, text.split("\n")[:-1])  # the last one may be incomplete
        self._tracker.curves(self._runs[name], [line for line in lines if line], time.time())


def _training(model: TrainedModel) -> Step[TrainingRun]:
    return to_step(model.training)


@contextmanager
def tracked(tracker: Tracker, workflow: Workflow, store: Store) -> Iterator[MlflowWatcher]:
    """Opens a workflow's runs, and closes them if the body fails. The body must call `finish` at its end."""
    watcher = MlflowWatcher(tracker, workflow, store)
    try:
        yield watcher
    except KeyboardInterrupt:
        watcher.close("KILLED")
        raise
    except BaseException:
        watcher.close("FAILED")
        raise
