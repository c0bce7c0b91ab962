"""Writes to MLflow: one experiment per table, one parent run per workflow, one child run per model.

Only drivers write, since SQLite does not cope with many writers; several drivers may share a SQLite file. A parent is
identified by the fingerprint of its workflow, a child by its parent and the fingerprint of its training. So the same
command continues its runs instead of adding new ones, another beam size opens new ones even where nothing is trained
anew, and a figure that MLflow already has is not sent again. What cannot be sent is kept and sent later
(`workflows.tracking.delivery`).

    tracker = Tracker(default_uri(runs), "table2", runs)
    tracker.workflow(fingerprint, "table2 embedded", {"profile": "embedded"})
    tracker.model(training_fingerprint, "EN-DE base", settings, inputs=[text, vocabulary])
    tracker.metrics(training_fingerprint, {"loss": 2.3}, step=100)
    tracker.end()
"""

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pipeline.store.artifacts import Checkpoint
from pipeline.store.locks import guarded
from workflows.tracking import models
from workflows.tracking.addresses import without_password
from workflows.tracking.delivery import Delivery, files, is_refused, kept
from workflows.tracking.description import NOTE_TAG, description
from workflows.tracking.models import Registration

Status = Literal["FINISHED", "FAILED", "KILLED"]
METRICS_A_REQUEST, PARAMS_A_REQUEST = 1000, 100
"""MLflow's limits on a single request."""
FLUSH_S = 5.0
"""Metrics are kept in memory for at most about this long."""
WORKFLOW_TAG = "aiayn.workflow"
TRAINING_TAG = "aiayn.training"
CURVES_TAG = "aiayn.curves"
"""The tag set once all of a training's `metrics.jsonl` has been sent."""


@dataclass(frozen=True)
class Input:
    """An artifact that a run's model is made from; MLflow shows it as a dataset."""

    name: str
    fingerprint: str
    folder: Path
    """The folder it is or will be published in."""
    context: str
    """What the run uses it for, e.g. `training`."""


def _silence() -> None:
    """Stops what MLflow would log of each table it makes and of each attempt to reach a server that is away."""
    # MLflow sets its own log levels when imported.
    for name, level in {"mlflow.store.db.utils": logging.CRITICAL, "alembic": logging.WARNING}.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)


def _make_tables(database: Path) -> None:
    """Makes MLflow's tables in a temporary file, because MLflow cannot continue from tables a killed process left."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    _silence()
    making = database.with_name(f".making-{database.name}")
    making.unlink(missing_ok=True)
    SqlAlchemyStore(f"sqlite:///{making}", "./mlruns").engine.dispose()
    os.replace(making, database)


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested settings: {"model": {"d_k": 64}} -> {"model.d_k": 64}."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat.update(flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value})
    return flat


def _as_dataset(given: Input) -> Any:
    """Returns MLflow's description of an input, which `mlflow.data.get_source` resolves to its folder."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    source = json.dumps({"uri": given.folder.as_uri()})
    tags = [InputTag("mlflow.data.context", given.context)]
    return DatasetInput(Dataset(given.name, given.fingerprint, "local", source), tags)


class Tracker(Delivery):
    """Writes to one MLflow experiment. Nothing is imported or opened before the first call.

    A wrong address is a UserError at the start. A server that does not answer is a warning, then or later; what it does
    not take is kept on disk, and the methods return None.
    """

    opening = ("workflow", "model")

    def __init__(self, uri: str, experiment: str, runs: Path) -> None:
        super().__init__(uri, experiment, runs)
        self._pending: dict[str, list[Any]] = {}
        """The metrics that wait in memory, by run."""
        self.forget()

    def forget(self) -> None:
        """Forgets what is known of the server: the ids of its runs and what they have."""
        self.__dict__.pop("_experiment_id", None)
        self._workflow_run = ""
        self._model_runs: dict[str, str] = {}
        self._sent: dict[str, dict[str, set[int]]] = {}
        """Maps each run and metric to the steps that MLflow already has."""
        self._pending.clear()
        self._flushed = time.monotonic()

    def ask(self) -> None:
        """Asks for one experiment. Raises what MLflow raises where it does not answer."""
        with self._one_at_a_time():
            self._client.search_experiments(max_results=1)

    @property
    def took_all(self) -> bool:
        """Says whether MLflow took everything that it was sent."""
        return not self._warned and self._journal is None

    @cached_property
    def _client(self) -> Any:
        from mlflow.tracking import MlflowClient  # takes 2 to 3 s

        _silence()
        return MlflowClient(tracking_uri=self.uri)

    @cached_property
    def _experiment_id(self) -> str:
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(self.experiment)
        if found is None:
            local = self.uri.startswith("sqlite:")
            folder = (self._runs.absolute() / "mlartifacts").as_uri() if local else None
            tags = {"mlflow.experimentKind": "custom_model_development"}  # how the UI shows it
            try:
                return str(self._client.create_experiment(self.experiment, folder, tags))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            found = self._client.get_experiment_by_name(self.experiment)  # another command was faster
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Lets commands that share a SQLite file make its tables, or look up and create runs, one at a time."""
        if not self.uri.startswith("sqlite:///"):
            yield
            return
        database = Path(self.uri.removeprefix("sqlite:///")).absolute()
        with guarded(database.parent / ".locks"):
            if not database.exists():
                _make_tables(database)
            yield

    def _open(
        self,
        identity: Mapping[str, str],
        name: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        inputs: Sequence[Input],
    ) -> Any:
        """Finds the run that has the tags `identity`, or creates it, and sends what it lacks of the rest."""
        from mlflow.entities import Param, RunTag

        wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in identity.items())
        found = self._client.search_runs([self._experiment_id], filter_string=wanted, max_results=1)
        run = found[0] if found else self._client.create_run(self._experiment_id, run_name=name, tags=dict(identity))
        changed = [RunTag(key, value) for key, value in tags.items() if run.data.tags.get(key) != value]
        if changed:
            self._client.log_batch(run.info.run_id, tags=changed)
        told = {key: without_password(str(value)) for key, value in flatten(params).items()}
        # MLflow accepts no second value of a parameter: those of the command that opened the run stay.
        lacking = [Param(key, value) for key, value in told.items() if key not in run.data.params]
        for start in range(0, len(lacking), PARAMS_A_REQUEST):
            self._client.log_batch(run.info.run_id, params=lacking[start : start + PARAMS_A_REQUEST])
        if inputs:
            self._client.log_inputs(run.info.run_id, [_as_dataset(given) for given in inputs])
        if run.info.status in ("FAILED", "KILLED"):
            self._client.update_run(run.info.run_id, status="RUNNING")
        return run

    @kept
    def workflow(
        self,
        fingerprint: str,
        name: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str] | None = None,
        inputs: Sequence[Input] = (),
    ) -> str:
        """Opens the parent run of a workflow, identified by `fingerprint`, and returns its MLflow id.

        Raises UserError if the address or the password is wrong.
        """
        with self._one_at_a_time():
            run = self._open({WORKFLOW_TAG: fingerprint}, name, params, tags or {}, inputs)
        self._workflow_run = str(run.info.run_id)
        return self._workflow_run

    @kept
    def model(
        self,
        fingerprint: str,
        name: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str] | None = None,
        inputs: Sequence[Input] = (),
    ) -> str:
        """Opens the workflow's child run of a training, identified by `fingerprint`, and returns its id."""
        identity = {TRAINING_TAG: fingerprint, "mlflow.parentRunId": self._workflow_run}
        with self._one_at_a_time():
            run = self._open(identity, name, params, tags or {}, inputs)
        self._model_runs[fingerprint] = run_id = str(run.info.run_id)
        known = {} if CURVES_TAG in run.data.tags else run.data.metrics
        self._sent[run_id] = {
            metric: {point.step for point in self._client.get_metric_history(run_id, metric)} for metric in known
        }
        return run_id

    @kept
    def metrics(self, fingerprint: str, values: Mapping[str, Any], step: int, at: float) -> None:
        """Sends a training's figures after `step` updates, in batches; `at` is in seconds since 1970."""
        run = self._model_runs[fingerprint]
        self._add(run, values, step, at)
        if time.monotonic() - self._flushed > FLUSH_S or len(self._pending.get(run, ())) >= METRICS_A_REQUEST:
            self.send_pending()

    @kept
    def curves(self, fingerprint: str, lines: Sequence[Mapping[str, Any]], ended: float) -> None:
        """Sends the missing lines of a finished training's `metrics.jsonl`; `ended` is in seconds since 1970."""
        run = self._model_runs[fingerprint]
        if CURVES_TAG in self._client.get_run(run).data.tags:
            return
        last_s = max((line["train_s"] for line in lines), default=0.0)
        for line in lines:
            self._add(run, line, line["update"], ended - last_s + line["train_s"])
        self.send_pending()
        self._client.set_tag(run, CURVES_TAG, "complete")

    def _add(self, run: str, values: Mapping[str, Any], step: int, at: float) -> None:
        """Puts those figures into memory that MLflow does not have."""
        from mlflow.entities import Metric

        for name, value in values.items():
            steps = self._sent[run].setdefault(name, set())
            if name == "update" or not isinstance(value, int | float) or step in steps:
                continue
            steps.add(step)
            self._pending.setdefault(run, []).append(Metric(name, float(value), int(at * 1000), step))

    @kept
    def results(self, fingerprint: str, values: Mapping[str, float]) -> None:
        """Sends final figures of a model, e.g. {"paper_bleu.newstest2014": 27.3}, if they have changed.

        If `fingerprint` is "", the figures are those of the workflow.
        """
        from mlflow.entities import Metric

        run = self._model_runs[fingerprint] if fingerprint else self._workflow_run
        known = self._client.get_run(run).data.metrics
        now = int(time.time() * 1000)
        changed = [Metric(name, float(value), now, 0) for name, value in values.items() if known.get(name) != value]
        if changed:
            self._client.log_batch(run, metrics=changed)

    @kept
    def series(self, fingerprint: str, name: str, values: Mapping[int, float]) -> None:
        """Sends a figure of a model that was measured after its training, by update, where MLflow does not have it."""
        from mlflow.entities import Metric

        run, now = self._model_runs[fingerprint], int(time.time() * 1000)
        known = {point.step for point in self._client.get_metric_history(run, name)}
        lacking = [Metric(name, value, now, update) for update, value in values.items() if update not in known]
        for start in range(0, len(lacking), METRICS_A_REQUEST):
            self._client.log_batch(run, metrics=lacking[start : start + METRICS_A_REQUEST])

    @kept
    def artifacts(self, folder: Path, fingerprint: str, model: str = "", into: str = "") -> None:
        """Sends the files of an artifact's folder, once, to the workflow's run or to that of the training `model`.

        `into` names the folder they are put in on that run.
        """
        run, tag = self._model_runs[model] if model else self._workflow_run, f"aiayn.artifact.{folder.name}"
        if self._client.get_run(run).data.tags.get(tag) != fingerprint:
            with files():
                self._client.log_artifacts(run, str(folder), into or None)
            self._client.set_tag(run, tag, fingerprint)

    @kept
    def attach(self, training: str, folder: Path, fingerprint: str, into: str) -> int:
        """Sends an artifact's files, once, to each run of a training in any experiment; returns how many there are.

        `training` and `fingerprint` are those of the training and of the artifact; `into` names the folder on the runs.
        """
        tag, experiments = f"aiayn.artifact.{folder.name}", self._client.search_experiments()
        wanted = f"tags.`{TRAINING_TAG}` = '{training}'"
        found = self._client.search_runs([one.experiment_id for one in experiments], wanted) if experiments else []
        for run in found:
            if run.data.tags.get(tag) != fingerprint:
                with files():
                    self._client.log_artifacts(run.info.run_id, str(folder), into)
                self._client.set_tag(run.info.run_id, tag, fingerprint)
        return len(found)

    @kept
    def tags(self, fingerprint: str, tags: Mapping[str, str]) -> None:
        """Sets tags of a training's run, replacing those it has."""
        from mlflow.entities import RunTag

        self._client.log_batch(self._model_runs[fingerprint], tags=[RunTag(*tag) for tag in tags.items()])

    @kept
    def text(self, fingerprint: str, text: str, name: str) -> None:
        """Sends a text file to a training's run, e.g. sample translations as `samples.md`."""
        self._client.log_text(self._model_runs[fingerprint], text, name)

    @kept
    def translator(
        self,
        fingerprint: str,
        checkpoint: Checkpoint,
        served_by: str = "pipeline.export.mlflow_model",
        registered: Registration | None = None,
    ) -> None:
        """Sends a trained model in a form that `mlflow models serve` accepts; the module `served_by` saves it.

        An experiment keeps one copy of it; other runs of the same training refer to that copy. Where it is to be
        `registered`, it becomes a version of the model of that name.
        """
        run = self._model_runs[fingerprint]
        with files():
            model_id = models.keep(self._client, self._experiment_id, run, checkpoint, served_by)
        if registered:
            models.register(self._client, model_id, run, registered)

    @kept
    def describe(self, folder: Path, command: str, served: Sequence[str]) -> None:
        """Sets the text at the top of the workflow's page: the table in `folder`, its command, its models."""
        address = f"#/experiments/{self._experiment_id}/runs/{self._workflow_run}"
        self._client.set_tag(self._workflow_run, NOTE_TAG, description(folder, address, command, served))

    def has_pending(self) -> bool:
        """Returns whether metrics wait in memory."""
        return any(self._pending.values())

    def send_pending(self) -> None:
        """Sends the metrics that wait in memory. Where MLflow refuses them for good, they are dropped."""
        self._flushed = time.monotonic()
        for run, pending in self._pending.items():
            while pending:
                try:
                    self._client.log_batch(run, metrics=pending[:METRICS_A_REQUEST])
                except Exception as error:
                    if is_refused(error):
                        pending.clear()
                    raise
                del pending[:METRICS_A_REQUEST]

    @kept
    def end_model(self, fingerprint: str, status: Status = "FINISHED") -> None:
        """Closes the run of a training."""
        self.send_pending()
        self._terminate(self._model_runs[fingerprint], status)

    def end(self, status: Status = "FINISHED") -> None:
        """Closes the workflow's run, and those of its models that are still open, with the given status."""
        self.end_workflow(status)
        self.close()

    @kept
    def end_workflow(self, status: Status) -> None:
        """Closes the runs as `end` does, and leaves the tracker open."""
        self.send_pending()
        for run in [*self._model_runs.values(), self._workflow_run]:
            self._terminate(run, status)

    def _terminate(self, run: str, status: Status) -> None:
        if self._client.get_run(run).info.status == "RUNNING":
            self._client.set_terminated(run, status)
