"""Copies a workflow from the store to MLflow: a run of the table, and a child run per model.

    exporter = Exporter(server, workflow, store)
    exporter.model("en-de base")                # what the store has of it so far: its curve, later its results
    exporter.table(artifact, table.metrics, reports)
    exporter.stop("FAILED", "the reason")       # ends the runs that are still open

Each call may be repeated, also by another process after a kill, and sends what MLflow lacks; commands call by
`Server.attempt`, in turn. A run is identified by the fingerprint of the table's step and the run's name.
"""

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import psutil

from pipeline.settings import Settings, flatten
from pipeline.store.artifact import MANIFEST, Artifact
from pipeline.store.artifacts import METRICS, Corpus, EvaluationSet, read_metrics_line
from pipeline.store.store import Store
from workflows.engine.dag import Step, in_order
from workflows.tables.corpus import CorpusReport
from workflows.tables.measured import Cell, measured, samples
from workflows.tracking.addresses import without_password
from workflows.tracking.models import registered_name, serve
from workflows.tracking.server import Server

Status = Literal["FINISHED", "FAILED", "KILLED"]
WORKFLOW_TAG, NAME_TAG, TRAINING_TAG = "aiayn.workflow", "aiayn.name", "aiayn.training"
PARENT_TAG = "mlflow.parentRunId"
DRIVER_TAG = "aiayn.driver"
"""The tag for the host, process and processes' namespace of the command that last opened a run."""
FAILURE_TAG, SENT_TAG = "aiayn.failure", "aiayn.sent"
"""The tags for the reason of a failure, and of runs that lack nothing."""


@dataclass(frozen=True)
class Workflow:
    """A workflow in MLflow."""

    fingerprint: str
    """The fingerprint of the table's step."""
    profile: str
    params: Mapping[str, Any]
    """Parameters of the table's run, beyond those that all models share."""
    models: Mapping[str, Cell]
    """By name."""
    is_served: bool
    """Whether the models' weights are logged, too, in a form that MLflow can serve."""


class Exporter:
    """Copies one workflow. Its methods raise MLflow's errors; they may then be called again."""

    def __init__(self, server: Server, workflow: Workflow, store: Store) -> None:
        """Sends nothing yet."""
        self._server, self._workflow, self._store = server, workflow, store
        self._title = f"{server.experiment} {workflow.profile}"
        self._runs: dict[str, Any] = {}
        """MLflow's runs by name, as of their opening or end."""
        self._known: dict[str, dict[tuple[str, int], float]] = {}
        """The points that MLflow has, by run: values by metric and update."""

    def open(self) -> str:
        """Opens the table's run unless it is open, and returns its id. Ends the runs of killed commands."""
        if self._title not in self._runs:
            for run in self._search("attributes.status = 'RUNNING'"):
                if _is_gone(run.data.tags.get(DRIVER_TAG, "")):
                    self._server.client.set_terminated(run.info.run_id, "KILLED")
            models = self._workflow.models.values()
            settings = [set(settings_of(model).items()) for model in models]
            shared = dict(set.intersection(*settings)) if settings else {}
            datasets = {each.dataset.digest: each for model in models for each in datasets_of(model, self._store)}
            params = {**shared, **to_params(self._workflow.params)}
            self._open(self._title, {}, params, [*datasets.values()])
        return str(self._runs[self._title].info.run_id)

    def model(self, name: str, failure: str = "") -> None:
        """Sends what the store has of a model, and ends its run if all is measured or there is a `failure`.

        Raises UserError for a missing or damaged file.
        """
        model = self._workflow.models[name]
        training = model.training
        if name not in self._runs:
            tags = {PARENT_TAG: self.open(), TRAINING_TAG: training.fingerprint, **self._about(model)}
            self._open(name, tags, settings_of(model), datasets_of(model, self._store))
        if self._is_sent(name):
            return
        if not failure and all(self._store.find(step.name) for step in reversed(model.steps)):
            self._results(name)
            return
        lines = map(read_metrics_line, (self._store.peek(training.name, METRICS) or "").split("\n")[:-1])
        self._send(name, _curves([line for line in lines if line], time.time()))  # without the last, half-written line
        if failure:
            self._end(name, "FAILED", failure)

    def table(self, table: Artifact, main_metrics: Mapping[str, float], reports: Mapping[str, CorpusReport]) -> None:
        """Sends the table and the corpus reports, and ends the table's run."""
        run, results = self.open(), dict(main_metrics)
        is_complete = all(map(self._is_sent, self._workflow.models))
        if not self._is_sent(self._title):
            for name, report in reports.items():
                results |= {f"{metric}.{name}": value for metric, value in report.metrics.items()}
                self._server.client.log_artifacts(run, str(report.folder), f"corpus-{name}")
            self._send(self._title, _points(results, 0))
            self._server.client.log_artifacts(run, str(table.folder))
            self._end(self._title, "FINISHED", is_sent=is_complete)
        if is_complete:
            self._server.mark_complete(self._workflow.fingerprint)

    def stop(self, status: Status, why: str) -> None:
        """Ends all runs that are still open."""
        for name, run in self._runs.items():
            if self._server.client.get_run(run.info.run_id).info.status == "RUNNING":
                self._end(name, status, why)

    def _is_sent(self, name: str) -> bool:
        return name in self._runs and SENT_TAG in self._runs[name].data.tags

    def _about(self, model: Cell) -> dict[str, str]:
        return {"pair": model.pair, "model": model.model, "profile": self._workflow.profile}

    def _search(self, condition: str) -> list[Any]:
        return list(self._server.client.search_runs([self._server.experiment_id], condition, max_results=50_000))

    def _open(self, name: str, tags: Mapping[str, str], params: Mapping[str, str], datasets: Sequence[Any]) -> None:
        """Finds or creates a run, and sends the tags, parameters and datasets that it lacks."""
        from mlflow.entities import Param, RunTag
        from mlflow.tracking.context.registry import resolve_tags

        client, key = self._server.client, {WORKFLOW_TAG: self._workflow.fingerprint, NAME_TAG: name}
        source = {
            DRIVER_TAG: f"{socket.gethostname()} {os.getpid()} {_namespace()}",
            "mlflow.source.name": f"workflows.reproduce_{self._server.experiment}",
        }
        tags = {**key, **tags, **resolve_tags(source)}  # user and commit, too
        known = self._search(" and ".join(f"tags.`{tag}` = '{value}'" for tag, value in key.items()))
        run = known[0] if known else client.create_run(self._server.experiment_id, run_name=name, tags=tags)
        self._runs[name] = run
        if not self._is_sent(name):
            # MLflow rejects changed parameters: those of the command that created the run stay.
            lacking = [Param(*each) for each in params.items() if each[0] not in run.data.params]
            client.log_batch(run.info.run_id, params=lacking, tags=[RunTag(*tag) for tag in tags.items()])
            client.log_inputs(run.info.run_id, datasets)
            client.update_run(run.info.run_id, status="RUNNING")

    def _results(self, name: str) -> None:
        client, run, steps = self._server.client, self._runs[name], self._workflow.models[name]
        model = measured(steps.published(self._store))
        manifest = model.cell.training.manifest
        curves = _curves(model.metrics, datetime.fromisoformat(manifest["started"]).timestamp() + manifest["seconds"])
        # A result that is also a curve, like `train_s`, is its last point.
        results = {key: value for key, value in model.final_metrics().items() if key not in model.metrics[-1]}
        by_update = [(key, *point) for key, series in model.series.items() for point in series.items()]
        later = [point for key, update, value in by_update for point in _points({key: value}, update)]
        self._send(name, [*curves, *_points(results, 0), *later])
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
        for tag in to_params({"used": used}).items():
            client.set_tag(run.info.run_id, *tag)
        shown = ("\n".join(f"{f'{name}:':12} {text}" for name, text in each.items()) for each in samples(model.cell))
        client.log_text(run.info.run_id, "\n\n".join(shown) + "\n", "samples.txt")
        client.log_dict(run.info.run_id, manifest, MANIFEST)
        # To a SQLite file, only weights on this machine are sent.
        has_weights = not self._server.has_file or self._store.has(steps.checkpoint.name)
        if self._workflow.is_served and has_weights:
            served = registered_name(name, steps.pair)
            serve(client, run, served, model.cell.checkpoint, search, self._store, self._about(steps))
        self._end(name, "FINISHED", is_sent=has_weights or not self._workflow.is_served)

    def _send(self, name: str, points: Sequence[Any]) -> None:
        """Sends the points that MLflow lacks: other updates, and results (update 0) of another value."""
        client, run = self._server.client, self._runs[name].info.run_id
        known = self._known.pop(run, None)  # asked again after an error: a request may arrive without its answer
        if known is None:
            histories = [client.get_metric_history(run, metric) for metric in client.get_run(run).data.metrics]
            known = {(point.key, point.step): point.value for each in histories for point in each}
        lacking = [
            point
            for point in points
            if (point.key, point.step) not in known or (point.step == 0 and known[point.key, 0] != point.value)
        ]
        client.log_batch(run, metrics=lacking)
        self._known[run] = known | {(point.key, point.step): point.value for point in lacking}

    def _end(self, name: str, status: Status, why: str = "", *, is_sent: bool = False) -> None:
        client, run = self._server.client, self._runs[name].info.run_id
        if why:
            client.set_tag(run, FAILURE_TAG, why)
        elif FAILURE_TAG in client.get_run(run).data.tags:  # of an earlier attempt
            client.delete_tag(run, FAILURE_TAG)
        if is_sent:
            client.set_tag(run, SENT_TAG, "yes")
        client.set_terminated(run, status)
        self._runs[name] = client.get_run(run)


def _points(values: Mapping[str, float], update: int) -> list[Any]:
    from mlflow.entities import Metric

    return [Metric(name, float(value), int(time.time() * 1000), update) for name, value in values.items()]


def _curves(lines: Sequence[Mapping[str, Any]], last_at_s: float) -> list[Any]:
    """Returns the points of the lines of `metrics.jsonl`, the last of which was written `last_at_s` after 1970."""
    from mlflow.entities import Metric

    began_s = last_at_s - max((line["train_s"] for line in lines), default=0.0)
    return [
        Metric(name, float(value), int((began_s + line["train_s"]) * 1000), line["update"])
        for line in lines
        for name, value in line.items()
        if name != "update" and isinstance(value, int | float)
    ]


def _is_gone(driver: str) -> bool:
    """Whether a driver was a process of this host and namespace, such as a container, and has ended."""
    host, pid, namespace = [*driver.rsplit(" ", 2), "", ""][:3]
    return (host, namespace) == (socket.gethostname(), _namespace()) and not psutil.pid_exists(int(pid))


def _namespace() -> str:
    """Identifies the processes among which a pid is unique: the kernel's, since its boot, or a container's."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return "-"  # not Linux


def settings_of(model: Cell) -> dict[str, str]:
    """Returns the settings of each step behind a model, e.g. {"corpus.pairs": "600", "cleaning.max_words": "250", ...}.

    `corpus` has the settings and name of the training text's step, `evaluation_set.dev` and so on those of the
    evaluation sets.
    """
    settings_by_kind: dict[str, Any] = {}
    for step in in_order(model.results):
        kind = step.stage.short_name
        for argument in step.arguments:
            if isinstance(argument, Settings):
                settings = argument.model_dump(mode="json")
                if step.stage.makes is EvaluationSet:
                    kind = f"{kind}.{settings['name']}"
                settings_by_kind |= {"corpus": {**settings, "name": kind}} if _is_text(step) else {kind: settings}
    return to_params(settings_by_kind)


def datasets_of(model: Cell, store: Store) -> list[Any]:
    """Returns the training text and the evaluation sets behind a model, as inputs of an MLflow run."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    datasets = []
    for step in in_order(model.results):
        if _is_text(step) or step.stage.makes is EvaluationSet:
            place = f"{store.uri}/{step.name}" if store.uri else store.folder(step.name).absolute().as_uri()
            source = json.dumps({"uri": place})
            dataset = Dataset(step.label, step.fingerprint, "s3" if store.uri else "local", source)
            context = "training" if _is_text(step) else "evaluation"
            datasets.append(DatasetInput(dataset, [InputTag("mlflow.data.context", context)]))
    return datasets


def to_params(settings: Any) -> dict[str, str]:
    """Flattens settings to MLflow's parameters, without passwords."""
    return {name: without_password(str(value)) for name, value in flatten(settings).items()}


def _is_text(step: Step[Any]) -> bool:
    return step.stage.makes is Corpus and not step.inputs
