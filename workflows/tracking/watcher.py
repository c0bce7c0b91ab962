"""MLflow as a view of the store: a run of the table, and a child run per model.

    with MlflowWatcher(server, workflow, store) as mlflow:      # sends what is new every `LIVE_S` seconds
        ...
        mlflow.finish(artifact, table.metrics, reports, failures)

`sync` sends what MLflow lacks of what the store has, and may be called at any time, also by another process after a
kill. A run is identified by the fingerprint of the table's step and the run's name. Whatever MLflow or the store cannot
do causes one warning (`Server.attempt`). The same command later sends what is missing.
"""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from threading import Event
from typing import Any, Literal, Self

from pipeline.artifacts import METRICS, Corpus, EvaluationSet, read_metrics_line
from pipeline.errors import UserError
from pipeline.settings import CleaningSettings, Settings, flatten
from pipeline.store.artifact import MANIFEST, Artifact
from pipeline.store.store import Store
from workflows.engine.dag import Step, in_order
from workflows.engine.interface import Watcher
from workflows.runs import runs_in
from workflows.tables.corpus import CorpusReport
from workflows.tables.measured import Cell, listed, measured, samples
from workflows.tracking.addresses import without_password
from workflows.tracking.server import TRAINING_TAG, WORKFLOW_TAG, Server

LIVE_S = 5.0
"""Seconds between exports of running models."""
CHECK_S = 10.0
"""Seconds that the start waits for MLflow."""
NOT_EXPORTED = "not exported: the store lacks its results, or MLflow rejected them"
Status = Literal["FINISHED", "FAILED", "KILLED"]
NAME_TAG, PARENT_TAG, FAILURE_TAG, SENT_TAG = "aiayn.name", "mlflow.parentRunId", "aiayn.failure", "aiayn.sent"
"""The last two: the reason of a failure, and of runs that lack nothing."""


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


class MlflowWatcher(Watcher):
    """Sends while models run, in a thread, so that nothing waits for MLflow before `finish`, which ends the body."""

    def __init__(self, server: Server, workflow: Workflow, store: Store) -> None:
        """Raises UserError if the address or the password is wrong, unless MLflow has the workflow already."""
        self._server, self._workflow, self._store = server, workflow, store
        self._title = f"{server.experiment} {workflow.profile}"
        self._runs: dict[str, Any] = {}
        """MLflow's runs by name, as of their opening or end."""
        self._known: dict[str, dict[tuple[str, int], float]] = {}
        """The points that MLflow has, by run: values by metric and update."""
        self._shown: dict[str, int] = {}
        """How many validations MLflow shows samples of, by model."""
        self._failures: Mapping[str, str] = {}
        self._ignored: tuple[type[Exception], ...] = (UserError,)
        """Errors of missing and damaged files: until `finish`, they may be rebuilt for the table."""
        self._ended, self._thread = Event(), ThreadPoolExecutor(max_workers=1, thread_name_prefix="mlflow")
        self._is_complete = server.is_complete(workflow.fingerprint)
        if not self._is_complete:
            with suppress(TimeoutError):
                self._thread.submit(server.check_address).result(CHECK_S)

    def begin(self, steps: Collection[Step[Artifact]], cached: Sequence[Step[Artifact]]) -> None:
        """Sends from now on, unless MLflow has everything."""
        self._is_complete = self._is_complete and not steps
        if not self._is_complete:
            self._thread.submit(self._follow)

    def failed(self, name: str, results: Sequence[Step[Artifact]], why: str) -> None:
        """Has the next `sync` end the model's run."""
        self._failures = {**self._failures, name: why}

    def finish(
        self,
        table: Artifact,
        main_metrics: Mapping[str, float],
        reports: Mapping[str, CorpusReport],
        failures: Mapping[str, str],
    ) -> None:
        """Sends all that is missing and ends all runs. If MLflow did not answer before, tries once more."""
        self._end_thread()
        if not self._is_complete:
            self._server.next_request_s, self._failures, self._ignored = 0.0, failures, ()
            self.sync()
            self._server.attempt(lambda: self._table(table, main_metrics, reports))
            self._stop("FAILED", NOT_EXPORTED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Ends all runs after an error. What has happened before is sent, unless the user stopped the workflow."""
        if error is None:
            return
        is_stopped = isinstance(error, KeyboardInterrupt)
        self._end_thread()
        if not (is_stopped or self._is_complete):
            self.sync()
        self._stop("KILLED" if is_stopped else "FAILED", str(error).strip() or type(error).__name__)

    def sync(self) -> None:
        """Sends what the store has of each model, and ends the runs of those that have finished or failed."""
        self._server.attempt(self._open_table)
        for name in self._workflow.models:
            self._server.attempt(partial(self._model, name))

    def _follow(self) -> None:
        while not self._ended.is_set():
            self.sync()
            self._ended.wait(LIVE_S)

    def _end_thread(self) -> None:
        self._ended.set()
        self._thread.shutdown(cancel_futures=True)

    def _stop(self, status: Status, why: str) -> None:
        """Ends all runs that are still open."""

        def end(name: str) -> None:
            if self._server.client.get_run(self._runs[name].info.run_id).info.status == "RUNNING":
                self._end(name, status, why)

        for name in self._runs:
            self._server.attempt(partial(end, name))

    def _open_table(self) -> str:
        """Opens the table's run unless it is open, and returns its id. Ends the runs of the store's killed commands."""
        if self._title not in self._runs:
            known = [run for run in runs_in(self._store) if run.status != "running"]
            ended = {run.record.table.rpartition("-")[2] for run in known}
            for left in self._search("attributes.status = 'RUNNING'"):
                if left.data.tags.get(WORKFLOW_TAG) in ended:
                    self._server.client.set_terminated(left.info.run_id, "KILLED")
            models = self._workflow.models.values()
            settings = [set(settings_of(model).items()) for model in models]
            shared = dict(set.intersection(*settings)) if settings else {}
            datasets = {each.dataset.digest: each for model in models for each in datasets_of(model, self._store)}
            self._open(self._title, {}, {**shared, **to_params(self._workflow.params)}, [*datasets.values()])
        return str(self._runs[self._title].info.run_id)

    def _model(self, name: str) -> None:
        model, failure = self._workflow.models[name], self._failures.get(name, "")
        training = model.training
        if name not in self._runs:
            about = {"pair": model.pair, "model": model.model, "profile": self._workflow.profile}
            tags = {PARENT_TAG: self._open_table(), TRAINING_TAG: training.fingerprint, **about}
            self._open(name, tags, settings_of(model), datasets_of(model, self._store))
        if self._runs[name].info.status != "RUNNING":  # ended by an earlier call, or command
            return
        text = self._store.peek(training.name, METRICS) or ""
        if not failure and text and all(self._store.find(step.name) for step in reversed(model.parts(Step))):
            with suppress(*self._ignored):
                self._results(name)
            return
        lines = map(read_metrics_line, text.split("\n")[:-1])  # without the last, half-written line
        self._lines(name, [line for line in lines if line], time.time())
        if failure:
            self._end(name, "FAILED", failure)

    def _table(self, table: Artifact, main_metrics: Mapping[str, float], reports: Mapping[str, CorpusReport]) -> None:
        run, results = self._open_table(), dict(main_metrics)
        lacking = [name for name in self._workflow.models if not self._is_sent(name)]
        if not self._is_sent(self._title):
            for name, report in reports.items():
                results |= {f"{metric}.{name}": value for metric, value in report.metrics.items()}
                self._server.client.log_artifacts(run, str(report.folder), f"corpus-{name}")
            self._send(self._title, _points(results, 0, time.time()))
            self._server.client.log_artifacts(run, str(table.folder))
            self._end(self._title, "FINISHED", f"without {', '.join(lacking)}" if lacking else "")
        if not lacking:
            self._server.mark_complete(self._workflow.fingerprint)

    def _is_sent(self, name: str) -> bool:
        return name in self._runs and SENT_TAG in self._runs[name].data.tags

    def _search(self, condition: str) -> list[Any]:
        return list(self._server.client.search_runs([self._server.experiment_id], condition, max_results=50_000))

    def _open(self, name: str, tags: Mapping[str, str], params: Mapping[str, str], datasets: Sequence[Any]) -> None:
        """Finds or creates a run, and sends the tags, parameters and datasets that it lacks."""
        from mlflow.entities import Param, RunTag
        from mlflow.tracking.context.registry import resolve_tags

        client, key = self._server.client, {WORKFLOW_TAG: self._workflow.fingerprint, NAME_TAG: name}
        source = {"mlflow.source.name": f"workflows.reproduce_{self._server.experiment}"}
        tags = {**key, **tags, **resolve_tags(source)}  # user and commit, too
        known = self._search(" and ".join(f"tags.`{tag}` = {value!r}" for tag, value in key.items()))
        run = known[0] if known else client.create_run(self._server.experiment_id, run_name=name, tags=tags)
        if SENT_TAG not in run.data.tags:
            # MLflow rejects changed parameters: those of the command that created the run stay.
            lacking = [Param(*each) for each in params.items() if each[0] not in run.data.params]
            client.log_batch(run.info.run_id, params=lacking, tags=[RunTag(*tag) for tag in tags.items()])
            client.log_inputs(run.info.run_id, datasets)
            client.update_run(run.info.run_id, status="RUNNING")
            run = client.get_run(run.info.run_id)
        self._runs[name] = run

    def _results(self, name: str) -> None:
        client, run = self._server.client, self._runs[name].info.run_id
        model = measured(self._workflow.models[name].published(self._store))
        manifest, now = model.cell.training.manifest, time.time()
        ended_s = datetime.fromisoformat(manifest["started"]).timestamp() + manifest["seconds"]
        # A result that is also a curve, like `train_s`, is its last point.
        results = {key: value for key, value in model.final_metrics().items() if key not in model.metrics[-1]}
        by_update = [(update, {key: n}) for key, series in model.series.items() for update, n in series.items()]
        points = [point for update, values in [(0, results), *by_update] for point in _points(values, update, now)]
        self._lines(name, model.metrics, ended_s, points)
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
            client.set_tag(run, *tag)
        client.log_text(run, listed(samples(model.cell)), "samples.txt")
        client.log_dict(run, manifest, MANIFEST)
        self._end(name, "FINISHED")

    def _lines(self, name: str, lines: Sequence[Mapping[str, Any]], last_at_s: float, more: Sequence[Any] = ()) -> None:
        """Sends the lines of `metrics.jsonl` with the samples after each validation, and more points."""
        self._send(name, [*_curves(lines, last_at_s), *more])  # first: MLflow may refuse files, but no numbers
        run, shown = self._runs[name].info.run_id, [line for line in lines if line.get("samples")]
        if len(shown) > self._shown.get(name, 0):
            texts = [f"Update {line['update']:,}\n\n{listed(line['samples'])}" for line in shown]
            self._server.client.log_text(run, "\n".join(texts), "dev_samples.txt")
            self._shown[name] = len(shown)

    def _send(self, name: str, points: Sequence[Any]) -> None:
        """Sends the points that MLflow lacks: other updates, and results (update 0) of another value."""
        client, run = self._server.client, self._runs[name].info.run_id
        known = self._known.pop(run, None)  # asked again after an error: a request may arrive without its answer
        if known is None:
            histories = [client.get_metric_history(run, metric) for metric in client.get_run(run).data.metrics]
            known = {(point.key, point.step): point.value for each in histories for point in each}
        keyed = [((point.key, point.step), point) for point in points]
        lacking = [each for at, each in keyed if at not in known or (at[1] == 0 and known[at] != each.value)]
        if lacking:
            client.log_batch(run, metrics=lacking)
        self._known[run] = known | {(point.key, point.step): point.value for point in lacking}

    def _end(self, name: str, status: Status, why: str = "") -> None:
        """Ends a run; without a reason `why` it lacks nothing."""
        client, run = self._server.client, self._runs[name].info.run_id
        if why:
            client.set_tag(run, FAILURE_TAG, why)
        elif FAILURE_TAG in self._runs[name].data.tags:  # of an earlier attempt
            client.delete_tag(run, FAILURE_TAG)
        client.set_terminated(run, status)
        if not why:
            client.set_tag(run, SENT_TAG, "yes")
        self._runs[name] = client.get_run(run)


def _points(values: Mapping[str, Any], update: int, at_s: float) -> list[Any]:
    """Returns the numbers among `values` as points of metrics at a time in seconds since 1970."""
    from mlflow.entities import Metric

    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return [Metric(name, float(value), int(at_s * 1000), update) for name, value in numbers.items()]


def _curves(lines: Sequence[Mapping[str, Any]], last_at_s: float) -> list[Any]:
    """Returns the points of the lines of `metrics.jsonl`, the last of which was written `last_at_s` after 1970."""
    began_s = last_at_s - max((line["train_s"] for line in lines), default=0.0)
    points = [_points(line, line["update"], began_s + line["train_s"]) for line in lines]
    return [point for of_line in points for point in of_line if point.key != "update"]


def settings_of(model: Cell) -> dict[str, str]:
    """Returns the settings of each step behind a model, e.g. {"corpus.pairs": "600", "cleaning.max_words": "250", ...}.

    `corpus` has the settings and name of the training text's step, `evaluation_set.dev` and so on those of the
    evaluation sets.
    """
    settings_by_kind: dict[str, Any] = {}
    for step in in_order(model.results):
        for argument in step.arguments:
            if isinstance(argument, Settings):
                kind, settings = step.stage.short_name, argument.model_dump(mode="json")
                if isinstance(argument, CleaningSettings):
                    kind = "cleaning"
                elif step.stage.makes is EvaluationSet:
                    kind = f"{kind}.{settings['name']}"
                elif step.stage.makes is Corpus:
                    kind, settings = "corpus", {**settings, "name": kind}
                settings_by_kind[kind] = settings
    return to_params(settings_by_kind)


def datasets_of(model: Cell, store: Store) -> list[Any]:
    """Returns the training text and the evaluation sets behind a model, as inputs of an MLflow run."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    datasets = []
    for step in in_order(model.results):
        if step.stage.makes in (Corpus, EvaluationSet):
            place = f"{store.uri}/{step.name}" if store.uri else store.folder(step.name).absolute().as_uri()
            dataset = Dataset(step.label, step.fingerprint, "s3" if store.uri else "local", json.dumps({"uri": place}))
            context = "training" if step.stage.makes is Corpus else "evaluation"
            datasets.append(DatasetInput(dataset, [InputTag("mlflow.data.context", context)]))
    return datasets


def to_params(settings: Any) -> dict[str, str]:
    """Flattens settings to MLflow's parameters, without passwords."""
    return {name: without_password(str(value)) for name, value in flatten(settings).items()}
