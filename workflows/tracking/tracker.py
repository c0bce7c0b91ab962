"""Writes to MLflow: one experiment per table, one parent run per workflow, one child run per model.

Only drivers write, since SQLite does not cope with many writers; several drivers may share a SQLite file. A parent is
identified by the fingerprint of its workflow, a child by its parent and the fingerprint of its training. So the same
command continues its runs instead of adding new ones, another beam size opens new ones even where nothing is trained
anew, and a figure that MLflow already has is not sent again.

    tracker = Tracker(default_uri(runs), "table2", runs)
    tracker.workflow(fingerprint, "table2 embedded", {"profile": "embedded"})
    tracker.model(training_fingerprint, "EN-DE base", settings, inputs=[text, vocabulary])
    tracker.metrics(training_fingerprint, {"loss": 2.3}, step=100)
    tracker.end()

`ui_command(uri)` returns the command that shows the runs in a browser.
"""

import json
import logging
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pipeline.errors import UserError
from pipeline.store.artifacts import Checkpoint
from pipeline.store.locks import guarded
from workflows.tracking import models
from workflows.tracking.description import NOTE_TAG
from workflows.tracking.models import Registration

logger = logging.getLogger(__name__)

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


def default_uri(runs: Path) -> str:
    """Returns `MLFLOW_TRACKING_URI` if set, otherwise the address of a SQLite file in the folder `runs`."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{runs.absolute()}/mlflow.db"


def ui_command(uri: str) -> str:
    """Returns the shell command that shows the runs in a browser on this machine, ready to be pasted."""
    if uri.startswith(("http://", "https://")):
        return f"{shlex.quote(sys.executable)} -m webbrowser {shlex.quote(uri)}"
    # Do not print a database's password: an address with one came from the environment.
    store = '"$MLFLOW_TRACKING_URI"' if without_password(uri) != uri else shlex.quote(uri)
    return f"{shlex.quote(sys.executable)} -m mlflow ui --backend-store-uri {store} --host 127.0.0.1"


def without_password(text: str) -> str:
    """Returns a text without the users and passwords of the addresses in it."""
    return re.sub(r"(?<=://)[^/\s]*@", "", text)


def _silence() -> None:
    """Stops MLflow from logging each table it makes; it sets its own log levels when imported."""
    for name in ("mlflow.store.db.utils", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)


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


class Tracker:
    """Writes to one MLflow experiment. Nothing is imported or opened before the first call.

    A server that cannot be reached at the start is a UserError; losing it later only logs a warning, so that the
    training continues.
    """

    def __init__(self, uri: str, experiment: str, runs: Path) -> None:
        self.uri, self.experiment, self._runs = uri, experiment, runs
        self._workflow_run = ""
        self._model_runs: dict[str, str] = {}
        self._sent: dict[str, dict[str, set[int]]] = {}
        """Maps each run and metric to the steps that MLflow already has."""
        self._pending: dict[str, list[Any]] = {}
        self._flushed = time.monotonic()
        self._warned = False

    @property
    def took_all(self) -> bool:
        """Says whether MLflow took everything that it was sent."""
        return not self._warned

    @cached_property
    def _client(self) -> Any:
        from mlflow.tracking import MlflowClient  # takes 2 to 3 s

        _silence()
        return MlflowClient(tracking_uri=self.uri)

    @cached_property
    def _experiment_id(self) -> str:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # by default MLflow retries for minutes
        try:
            found = self._client.get_experiment_by_name(self.experiment)
            if found is None:
                local = self.uri.startswith("sqlite:")
                folder = (self._runs.absolute() / "mlartifacts").as_uri() if local else None
                tags = {"mlflow.experimentKind": "custom_model_development"}  # how the UI shows it
                return str(self._client.create_experiment(self.experiment, folder, tags))
            if found.lifecycle_stage == "deleted":
                self._client.restore_experiment(found.experiment_id)
            return str(found.experiment_id)
        except Exception as error:
            reason = str(error).split("\n")[0]
            raise UserError(
                f"MLflow at {without_password(self.uri)} does not answer ({without_password(reason)}); "
                "check MLFLOW_TRACKING_URI or unset it"
            ) from None

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

    def workflow(
        self,
        fingerprint: str,
        name: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str] | None = None,
        inputs: Sequence[Input] = (),
    ) -> str:
        """Opens the parent run of a workflow, identified by `fingerprint`, and returns its MLflow id.

        Raises UserError if MLflow does not answer.
        """
        with self._one_at_a_time():
            run = self._open({WORKFLOW_TAG: fingerprint}, name, params, tags or {}, inputs)
        self._workflow_run = str(run.info.run_id)
        return self._workflow_run

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

    def metrics(self, fingerprint: str, values: Mapping[str, Any], step: int, at: float | None = None) -> None:
        """Sends a training's figures after `step` updates, in batches; `at` is in seconds since 1970, or None: now."""
        from mlflow.entities import Metric

        run = self._model_runs[fingerprint]
        milliseconds = int((time.time() if at is None else at) * 1000)
        for name, value in values.items():
            steps = self._sent[run].setdefault(name, set())
            if name == "update" or not isinstance(value, int | float) or step in steps:
                continue
            steps.add(step)
            self._pending.setdefault(run, []).append(Metric(name, float(value), milliseconds, step))
        if time.monotonic() - self._flushed > FLUSH_S or len(self._pending.get(run, ())) >= METRICS_A_REQUEST:
            self.flush()

    def curves(self, fingerprint: str, lines: Iterable[Mapping[str, Any]], ended: float) -> None:
        """Sends the missing lines of a finished training's `metrics.jsonl`; `ended` is in seconds since 1970."""
        run = self._model_runs[fingerprint]
        with self._tolerant():
            if CURVES_TAG in self._client.get_run(run).data.tags:
                return
            lines = list(lines)
            last_s = max((line["train_s"] for line in lines), default=0.0)
            for line in lines:
                self.metrics(fingerprint, line, line["update"], ended - last_s + line["train_s"])
            self.flush()
            if not self._pending.get(run):
                self._client.set_tag(run, CURVES_TAG, "complete")

    def results(self, fingerprint: str, values: Mapping[str, float]) -> None:
        """Sends final figures of a model, e.g. {"paper_bleu.newstest2014": 27.3}, if they have changed.

        If `fingerprint` is "", the figures are those of the workflow.
        """
        from mlflow.entities import Metric

        run = self._model_runs[fingerprint] if fingerprint else self._workflow_run
        with self._tolerant():
            known = self._client.get_run(run).data.metrics
            now = int(time.time() * 1000)
            changed = [Metric(name, float(value), now, 0) for name, value in values.items() if known.get(name) != value]
            if changed:
                self._client.log_batch(run, metrics=changed)

    def series(self, fingerprint: str, name: str, values: Mapping[int, float]) -> None:
        """Sends a figure of a model that was measured after its training, by update, where MLflow does not have it."""
        from mlflow.entities import Metric

        run, now = self._model_runs[fingerprint], int(time.time() * 1000)
        with self._tolerant():
            known = {point.step for point in self._client.get_metric_history(run, name)}
            lacking = [Metric(name, value, now, update) for update, value in values.items() if update not in known]
            for start in range(0, len(lacking), METRICS_A_REQUEST):
                self._client.log_batch(run, metrics=lacking[start : start + METRICS_A_REQUEST])

    def artifacts(self, folder: Path, fingerprint: str, model: str = "", into: str = "") -> None:
        """Sends the files of an artifact's folder, once, to the workflow's run or to that of the training `model`.

        `into` names the folder they are put in on that run.
        """
        run, tag = self._model_runs[model] if model else self._workflow_run, f"aiayn.artifact.{folder.name}"
        with self._tolerant():
            if self._client.get_run(run).data.tags.get(tag) != fingerprint:
                self._client.log_artifacts(run, str(folder), into or None)
                self._client.set_tag(run, tag, fingerprint)

    def tags(self, fingerprint: str, tags: Mapping[str, str]) -> None:
        """Sets tags of a training's run, replacing those it has."""
        from mlflow.entities import RunTag

        with self._tolerant():
            self._client.log_batch(self._model_runs[fingerprint], tags=[RunTag(*tag) for tag in tags.items()])

    def text(self, fingerprint: str, text: str, name: str) -> None:
        """Sends a text file to a training's run, e.g. sample translations as `samples.md`."""
        with self._tolerant():
            self._client.log_text(self._model_runs[fingerprint], text, name)

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
        with self._tolerant():
            model_id = models.keep(self._client, self._experiment_id, run, checkpoint, served_by)
            if registered:
                models.register(self._client, model_id, run, registered)

    def describe(self, write: Callable[[str], str]) -> None:
        """Sets the text at the top of the workflow's page, which `write` makes of the page's address in the UI."""
        with self._tolerant():
            address = f"#/experiments/{self._experiment_id}/runs/{self._workflow_run}"
            self._client.set_tag(self._workflow_run, NOTE_TAG, write(address))

    def flush(self) -> None:
        """Sends the pending metrics; if MLflow does not accept them, they stay pending."""
        self._flushed = time.monotonic()
        with self._tolerant():
            for run, pending in self._pending.items():
                while pending:
                    self._client.log_batch(run, metrics=pending[:METRICS_A_REQUEST])
                    del pending[:METRICS_A_REQUEST]

    def end_model(self, fingerprint: str, status: Status = "FINISHED") -> None:
        """Closes the run of a training."""
        self.flush()
        self._terminate(self._model_runs[fingerprint], status)

    def end(self, status: Status = "FINISHED") -> None:
        """Closes the workflow's run, and those of its models that are still open, with the given status."""
        self.flush()
        for run in [*self._model_runs.values(), self._workflow_run]:
            self._terminate(run, status)

    def _terminate(self, run: str, status: Status) -> None:
        with self._tolerant():
            if self._client.get_run(run).info.status == "RUNNING":
                self._client.set_terminated(run, status)

    @contextmanager
    def _tolerant(self) -> Iterator[None]:
        """Turns errors in the body into a single warning per tracker, since logging must not stop a training."""
        try:
            yield
        except Exception as error:
            if not self._warned:
                where, reason = without_password(self.uri), str(error).split("\n")[0]
                logger.warning("MLflow at %s does not take what it is sent: %s", where, without_password(reason))
            self._warned = True
