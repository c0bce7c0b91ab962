"""Reports a workflow to MLflow while it runs and when it is done; workflows.tracking.tracker does the writing."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Literal

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.store.artifacts import TrainingRun
from pipeline.store.store import LocalStore
from workflows.engine.dag import Step, to_step
from workflows.engine.events import Watcher
from workflows.engine.source import source_commit
from workflows.reports.corpus import CorpusReport
from workflows.reports.corpus_text import metrics
from workflows.tables.measurements import Trained, TrainedModel, read_metrics
from workflows.tracking.lineage import inputs_of, shared
from workflows.tracking.models import registration
from workflows.tracking.tracker import Status, Tracker

STATUS: Mapping[str, Status] = {"failed": "FAILED", "stopped": "KILLED"}
"""The MLflow status for each state of a model without results."""
USED = ("dtype", "device_name", "devices", "workers", "threads")
"""The figures of `run.json` that say what a training was run with, whatever its settings asked for."""


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

    def measured(self, store: LocalStore) -> Trained:
        """Returns what was measured. Raises UserError where a file is missing or broken."""
        return self.evaluation.published(store).measured()


class CurveWatcher(Watcher):
    """Sends the metrics of trainings as they arrive, and ends the run of a model as soon as it is measured."""

    def __init__(self, tracker: Tracker, models: Sequence[Model], store: LocalStore) -> None:
        self._tracker, self._store = tracker, store
        self._fingerprints = {model.training.fingerprint for model in models}
        self._open = {model.name: model for model in models}
        """The models whose runs are not closed, by name."""
        self.figures: dict[str, Mapping[str, float]] = {}
        """What was measured, by the names of the models that are closed."""
        self._to_come: set[str] = set()
        """Fingerprints of the steps that are being made."""

    def begin(self, steps: Sequence[Step[Artifact]], cached: Sequence[Step[Artifact]]) -> None:
        """Closes the runs of models that have nothing left to do, rather than when the others are done."""
        self._to_come |= {step.fingerprint for step in steps}
        if steps:
            self._close_measured()

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Sends the metrics of a training."""
        if "metrics" in event and step.fingerprint in self._fingerprints:
            self._tracker.metrics(step.fingerprint, event["metrics"], event["step"], time.time())

    def finished(self, step: Step[Artifact], summary: str) -> None:
        """Sends the whole curve of a finished training, in case an event was lost; closes the runs that are done."""
        self._to_come.discard(step.fingerprint)
        if step.fingerprint in self._fingerprints:
            _send_training(self._tracker, step.fingerprint, TrainingRun(step.published(self._store).folder))
        self._close_measured()

    def idle(self) -> None:
        """Sends what is kept, if it is time to ask again a server that was away."""
        self._tracker.retry()

    def given_up(self, step: Step[Artifact], state: Literal["failed", "stopped"]) -> None:
        """Closes the runs of a training without results."""
        for model in [model for model in self._open.values() if model.training.fingerprint == step.fingerprint]:
            self.close(model, state)

    def close(self, model: Model, state: Literal["measured", "failed", "stopped"] = "measured") -> None:
        """Sends what MLflow does not have yet of a model's results, if there are any, and ends its run.

        Raises UserError where a file is missing or broken.
        """
        fingerprint, tracker = model.training.fingerprint, self._tracker
        if state == "measured":
            measured = model.measured(self._store)
            _send_training(tracker, fingerprint, model.training.published(self._store))
            _send_results(tracker, fingerprint, measured)
            self.figures[model.name] = measured.final_figures()
            checkpoint = to_step(model.evaluation.checkpoint).published(self._store)
            registered = registration(tracker.experiment, model.name, model.tags)
            tracker.translator(fingerprint, checkpoint, model.evaluation.serves, registered)
        tracker.end_model(fingerprint, STATUS.get(state, "FINISHED"))
        self._open.pop(model.name, None)

    def _close_measured(self) -> None:
        for model in [*self._open.values()]:
            if not any(step.fingerprint in self._to_come for step in model.evaluation.steps) and all(
                self._store.find(step.name) for step in model.evaluation.steps
            ):
                with suppress(UserError):  # what is damaged is made again for the table, after which the run is closed
                    self.close(model)


def _send_training(tracker: Tracker, fingerprint: str, run: TrainingRun) -> None:
    """Sends those metrics of a finished training that MLflow does not have yet, and what it was trained with."""
    manifest, figures = run.manifest, run.load()
    ended = datetime.fromisoformat(manifest["started"]).timestamp() + manifest["seconds"]
    tracker.curves(fingerprint, read_metrics(run), ended)
    tracker.tags(fingerprint, {f"used.{name}": str(getattr(figures, name)) for name in USED})


def _send_results(tracker: Tracker, fingerprint: str, measured: Trained) -> None:
    """Sends the scores, perplexity, costs and samples of one model, and the type it was decoded in."""
    tracker.results(fingerprint, measured.final_figures())
    for name, values in measured.series().items():
        tracker.series(fingerprint, name, values)
    tracker.tags(fingerprint, {"used.decoding_dtype": measured.decoding.dtype})
    tracker.text(fingerprint, measured.samples_text() + "\n", "samples.txt")


def send_corpus_report(tracker: Tracker, report: CorpusReport, fingerprint: str, name: str) -> None:
    """Sends the main figures of the text `name`, and the files of its report, to the workflow's run."""
    tracker.results("", metrics(report.load(), name))
    tracker.artifacts(report.folder, fingerprint, into=f"corpus-{name}")


def source_tags(command: str) -> dict[str, str]:
    """Returns the tags behind the UI's Source column: the command, and the commit of its source if that is known."""
    tags = {"mlflow.source.name": command, "mlflow.source.type": "LOCAL"}
    if commit := source_commit():
        tags |= {"mlflow.source.git.commit": commit.sha1, "mlflow.source.git.dirty": str(commit.is_dirty).lower()}
    return tags


@contextmanager
def tracked(
    tracker: Tracker,
    workflow: Step[Artifact],
    name: str,
    source: Mapping[str, str],
    params: Mapping[str, Any],
    models: Sequence[Model],
    store: LocalStore,
) -> Iterator[CurveWatcher]:
    """Opens the parent run of `workflow` with a child run for each model; closes them with the outcome of the body.

    All of them have the tags `source` (`source_tags`). The parent also has the parameters that its children share, and
    the inputs of all of them.
    """
    inputs = [inputs_of(model.evaluation, store) for model in models]
    told = {**shared([model.params for model in models]), **params}
    tracker.workflow(workflow.fingerprint, name, told, source, list(dict.fromkeys(chain.from_iterable(inputs))))
    for model, of_model in zip(models, inputs, strict=True):
        tracker.model(model.training.fingerprint, model.name, model.params, {**source, **model.tags}, of_model)
    try:
        yield CurveWatcher(tracker, models, store)
    except KeyboardInterrupt:
        tracker.end("KILLED")
        raise
    except BaseException:
        tracker.end("FAILED")
        raise
    tracker.end()
