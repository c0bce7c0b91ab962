"""Keeps a workflow's runs in MLflow up to date with the store: a parent, and a child a model.

The store has all that MLflow shows. So a server that is away costs a warning and no more: what it lacks is sent when
the workflow ends, or by the same command later.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, Literal

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.store.artifacts import TrainingRun
from pipeline.store.store import LocalStore
from pipeline.training.metrics import METRICS
from workflows.engine.dag import Step, to_step
from workflows.engine.events import Watcher
from workflows.engine.source import source_commit
from workflows.reports.corpus import CorpusReport
from workflows.reports.corpus_text import metrics
from workflows.tables.measurements import Trained, TrainedModel, read_metrics
from workflows.tracking.description import NOTE_TAG, description
from workflows.tracking.lineage import inputs_of, shared
from workflows.tracking.models import NEWEST, keep, register, registered_name
from workflows.tracking.tracker import PARENT_TAG, SENT_TAG, TRAINING_TAG, WORKFLOW_TAG, Status, Tracker

USED = ("dtype", "device_name", "devices", "threads")
"""The figures of `run.json` that say what a training was run with, whatever its settings asked for."""
LIVE_S = 5.0
"""The least time between two looks at the metrics of running trainings."""


@dataclass(frozen=True)
class Model:
    """One model of an experiment, which has a child run in MLflow and is kept there in a form that can be served."""

    name: str
    evaluation: TrainedModel
    params: Mapping[str, Any]
    tags: Mapping[str, str]

    @property
    def training(self) -> Step[TrainingRun]:
        """The step that trains it."""
        return to_step(self.evaluation.training)

    def registered_as(self, experiment: str) -> str:
        """Returns its name in MLflow's registry."""
        return registered_name(experiment, self.name, self.tags)

    def measured(self, store: LocalStore) -> Trained:
        """Returns what was measured. Raises UserError where a file is missing or broken."""
        return self.evaluation.published(store).measured()


@dataclass(frozen=True)
class Workflow:
    """What the parent run says of a workflow before it has run."""

    fingerprint: str
    """That of the step that makes the table of all models."""
    title: str
    command: str
    module: str
    params: Mapping[str, Any]
    """Those that its children do not share anyway."""
    models: Sequence[Model]

    @property
    def source(self) -> dict[str, str]:
        """The tags behind the UI's Source column: the module, and the commit of its source if that is known."""
        tags = {"mlflow.source.name": self.module, "mlflow.source.type": "LOCAL"}
        if commit := source_commit():
            tags |= {"mlflow.source.git.commit": commit.sha1, "mlflow.source.git.dirty": str(commit.is_dirty).lower()}
        return tags


class MlflowWatcher(Watcher):
    """Sends curves while trainings run, a model's results as soon as it is measured, and the rest by `finish`."""

    def __init__(self, tracker: Tracker, workflow: Workflow, store: LocalStore) -> None:
        """Opens the runs. Raises UserError if the address or the password is wrong."""
        self._tracker, self._workflow, self._store = tracker, workflow, store
        self._parent = ""
        self._runs: dict[str, str] = {}
        """The ids of the models' runs that are open, by the models' names."""
        self._to_come: set[str] = set()
        """Fingerprints of the steps that are being made."""
        self._news: set[str] = set()
        """Names of the models whose trainings have written metrics since the last look."""
        self._looked_s = 0.0
        n_runs = 1 + len({model.training.fingerprint for model in workflow.models})
        self._is_parent_sent = tracker.has_all(workflow.fingerprint, n_runs)
        if not self._is_parent_sent:
            tracker.attempt(self._open)

    def begin(self, steps: Sequence[Step[Artifact]], cached: Sequence[Step[Artifact]]) -> None:
        """Sends the models that have nothing left to do, rather than when the others are done."""
        self._to_come |= {step.fingerprint for step in steps}
        if steps:
            self._send_measured()

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Notes that a training has written metrics."""
        if "metrics" in event:
            self._news |= {model.name for model in self._of(step)}

    def idle(self) -> None:
        """Sends what trainings have written, every so often."""
        if self._news and time.monotonic() - self._looked_s > LIVE_S:
            for name in self._news & self._runs.keys():
                self._tracker.attempt(partial(self._send_written, name))
            self._news.clear()
            self._looked_s = time.monotonic()

    def finished(self, step: Step[Artifact], summary: str) -> None:
        """Sends the models that are measured now."""
        self._to_come.discard(step.fingerprint)
        self._send_measured()

    def given_up(self, step: Step[Artifact], state: Literal["failed", "stopped"]) -> None:
        """Sends the curve of a training without all its results, and closes its run."""
        for model in self._of(step):
            self._give_up(model, state)

    def finish(
        self,
        table: Artifact,
        figures: Mapping[str, float],
        reports: Mapping[str, CorpusReport],
        unfinished: Mapping[str, Literal["failed", "stopped"]],
    ) -> None:
        """Sends all that MLflow does not have yet: of each model, of the reports on the texts, of the table.

        Where it did not answer before, it is asked once more. Raises UserError where a file is missing or broken.
        """
        if self._tracker.has_warned:
            self._tracker.is_away = False
            self._runs.clear()
            if not self._tracker.attempt(self._open):
                return
        all_sent = True
        for model in [model for model in self._workflow.models if model.name in self._runs]:
            if state := unfinished.get(model.name):
                self._give_up(model, state)
            else:
                all_sent &= self._send(model)
        if all_sent and not self._is_parent_sent:
            self._tracker.attempt(partial(self._send_table, table, figures, reports, unfinished))

    def close(self, status: Status) -> None:
        """Closes all runs that are open, after an error."""
        for run in filter(None, [*self._runs.values(), "" if self._is_parent_sent else self._parent]):
            self._tracker.attempt(partial(self._tracker.end, run, status))

    def _open(self) -> None:
        """Opens the run of the workflow and that of each model, but for those that have got everything."""
        tracker, workflow, source = self._tracker, self._workflow, self._workflow.source
        inputs = {model.name: inputs_of(model.evaluation, self._store) for model in workflow.models}
        params = {**shared([model.params for model in workflow.models]), **workflow.params}
        of_all = list(dict.fromkeys(chain.from_iterable(inputs.values())))
        parent = tracker.open({WORKFLOW_TAG: workflow.fingerprint}, workflow.title, params, source, of_all)
        self._parent, self._is_parent_sent = parent.info.run_id, SENT_TAG in parent.data.tags
        known = {run.data.tags.get(TRAINING_TAG): run for run in tracker.runs({PARENT_TAG: self._parent})}
        for model in workflow.models:
            fingerprint = model.training.fingerprint
            if fingerprint not in known or SENT_TAG not in known[fingerprint].data.tags:
                identity = {TRAINING_TAG: fingerprint, PARENT_TAG: self._parent}
                tags = {**source, **model.tags}
                run = tracker.open(identity, model.name, model.params, tags, inputs[model.name])
                self._runs[model.name] = run.info.run_id

    def _of(self, step: Step[Artifact]) -> list[Model]:
        return [model for model in self._workflow.models if model.training.fingerprint == step.fingerprint]

    def _send_measured(self) -> None:
        for model in [model for model in self._workflow.models if model.name in self._runs]:
            if not any(step.fingerprint in self._to_come for step in model.evaluation.steps) and all(
                self._store.find(step.name) for step in model.evaluation.steps
            ):
                with suppress(UserError):  # what is damaged is made again for the table, after which the run is closed
                    self._send(model)

    def _send(self, model: Model) -> bool:
        """Sends what MLflow lacks of a model's results and ends its run; returns whether it took all.

        Raises UserError where a file is missing or broken.
        """
        measured, run, tracker = model.measured(self._store), self._runs[model.name], self._tracker

        def send() -> None:
            training = model.training.published(self._store)
            ended_s = datetime.fromisoformat(training.manifest["started"]).timestamp() + training.manifest["seconds"]
            tracker.curves(run, read_metrics(training), ended_s)
            tracker.results(run, measured.final_figures(), measured.series())
            used = {f"used.{name}": str(getattr(measured.run, name)) for name in USED}
            tracker.tags(run, {**used, "used.decoding_dtype": measured.decoding.dtype})
            tracker.client.log_text(run, measured.samples_text() + "\n", "samples.txt")
            client, checkpoint = tracker.client, to_step(model.evaluation.checkpoint).published(self._store)
            model_id = keep(client, tracker.experiment_id, run, checkpoint, model.evaluation.serves)
            register(client, model.registered_as(tracker.experiment), model_id, run, model.tags)
            tracker.end(run, "FINISHED", has_all_of=self._workflow.fingerprint)

        if is_sent := tracker.attempt(send):
            del self._runs[model.name]
        return is_sent

    def _give_up(self, model: Model, state: Literal["failed", "stopped"]) -> None:
        if model.name not in self._runs:
            return
        status: Status = "FAILED" if state == "failed" else "KILLED"
        self._tracker.attempt(partial(self._send_written, model.name))
        self._tracker.attempt(partial(self._tracker.end, self._runs[model.name], status))

    def _send_written(self, name: str) -> None:
        """Sends the metrics that a training has written so far."""
        (model,) = [model for model in self._workflow.models if model.name == name]
        text = self._store.peek(model.training.name, METRICS) or ""
        lines = [json.loads(line) for line in text.split("\n")[:-1]]  # the last one may be written in this moment
        self._tracker.curves(self._runs[name], lines, time.time())

    def _send_table(
        self,
        table: Artifact,
        figures: Mapping[str, float],
        reports: Mapping[str, CorpusReport],
        unfinished: Mapping[str, Literal["failed", "stopped"]],
    ) -> None:
        tracker, workflow, parent = self._tracker, self._workflow, self._parent
        for name, report in reports.items():
            tracker.results(parent, metrics(report.load(), name))
            tracker.client.log_artifacts(parent, str(report.folder), f"corpus-{name}")
        tracker.results(parent, figures)
        tracker.client.log_artifacts(parent, str(table.folder))
        measured = [model for model in workflow.models if model.name not in unfinished]
        address = f"#/experiments/{tracker.experiment_id}/runs/{parent}"
        served = [f"models:/{model.registered_as(tracker.experiment)}@{NEWEST}" for model in measured]
        tracker.tags(parent, {NOTE_TAG: description(table.folder, address, workflow.command, served)})
        tracker.end(parent, "FINISHED", has_all_of="" if unfinished else workflow.fingerprint)


@contextmanager
def tracked(tracker: Tracker, workflow: Workflow, store: LocalStore) -> Iterator[MlflowWatcher]:
    """Opens a workflow's runs; closes them if the body fails, which calls `finish` at its end."""
    watcher = MlflowWatcher(tracker, workflow, store)
    try:
        yield watcher
    except KeyboardInterrupt:
        watcher.close("KILLED")
        raise
    except BaseException:
        watcher.close("FAILED")
        raise
