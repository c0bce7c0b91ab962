"""Writes missing data to the runs of one MLflow experiment; every call may be repeated.

    tracker = Tracker(default_uri(folder), "table2", folder)
    tracker.attempt(lambda: tracker.open({WORKFLOW_TAG: fingerprint}, "table2 embedded", {"profile": "embedded"}))

Only drivers write, since SQLite does not cope with many writers; several drivers may share a SQLite file. Runs are
identified by the fingerprint in their tags. Curves are continued after the last step that the server has.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pipeline.errors import UserError
from pipeline.settings import flatten
from pipeline.store.locks import guarded
from workflows.tracking.addresses import (
    is_malformed,
    is_timeout,
    public_address,
    reason_of,
    sqlite_file,
    sqlite_uri,
    without_password,
)

logger = logging.getLogger(__name__)

Status = Literal["FINISHED", "FAILED", "KILLED"]
SETTINGS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # `Tracker.attempt` tries again
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""MLflow's settings, where the user has no others. By default it waits for minutes, prints a run's address, with a
password, and warns where there is no git."""
AWAY_S = 60.0
"""Seconds until the next request to a server that did not answer."""
METRICS_A_REQUEST, PARAMS_A_REQUEST, RUNS_A_REQUEST = 1000, 100, 50_000
"""MLflow's limits on a single request."""
WORKFLOW_TAG, TRAINING_TAG, PARENT_TAG = "aiayn.workflow", "aiayn.training", "mlflow.parentRunId"
MEASURED_TAG = "aiayn.measured"
"""The tag of a model's run with the identity of the model and its measurements."""
SENT_TAG = "aiayn.sent"
"""The tag of a complete run: the fingerprint of its workflow, or the identity of its model's measurements."""


class Tracker:
    """Writes to one MLflow experiment. MLflow is imported and its store opened by the first call."""

    def __init__(self, uri: str, experiment: str, root: Path) -> None:
        """Raises UserError if `uri` is malformed; `root` is the folder of MLflow's files if it names a SQLite file."""
        if is_malformed(uri):
            raise UserError(f"MLFLOW_TRACKING_URI: {public_address(uri)} is not an address; use e.g. http://HOST:5000")
        self.uri, self.experiment, self._root = uri, experiment, root
        self.is_away = False
        """Whether the server did not answer; then nothing is sent for `AWAY_S`, unless this is unset."""
        self._asked_s = 0.0
        """The time at which it did not answer, by the monotonic clock."""
        self.has_warned = False
        """Says whether something was not taken."""
        self._has_answered = False
        self._last_steps: dict[str, dict[str, int]] = {}
        """Maps each run and metric to the last step that MLflow has."""
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)

    def attempt(self, send: Callable[[], object]) -> bool:
        """Calls `send` unless the server is away, and returns whether MLflow took all; the first failure is a warning.

        A lost connection or a refused request is tried again at once, a server that does not answer after `AWAY_S`. One
        that hangs costs one request. Raises UserError if the first call fails because of a wrong address or password.
        """
        if self.is_away and time.monotonic() < self._asked_s + AWAY_S:
            return False
        for is_second in (False, True):  # connections get lost, and databases refuse what two commands write at once
            try:
                send()
                self._has_answered, self.is_away = True, False
                return True
            except UserError:
                raise
            except Exception as error:  # MLflow, SQLAlchemy, databases and HTTP each raise their own
                self._last_steps.clear()  # it may come back without what it had
                self.is_away = is_timeout(error) or not self._answers()
                self._asked_s = time.monotonic()
                if self.is_away or is_second:
                    self._warn(error)
                    return False
        return False

    def open(
        self,
        identity: Mapping[str, str],
        name: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str] | None = None,
        parent: Any = None,
    ) -> Any:
        """Returns the run that has the tags `identity`, made if there is none, with what it lacks of the rest.

        Given the run `parent`, it is a child of it. A run that has everything, or that nobody writes to any more, is
        taken from its earlier parent rather than sent once more, unless `parent` has everything, too.
        """
        from mlflow.entities import Param, RunTag

        place = {PARENT_TAG: parent.info.run_id} if parent else {}

        def rank(run: Any) -> tuple[bool, bool]:
            return SENT_TAG in run.data.tags, place.items() <= run.data.tags.items()

        with self._alone():
            known = [run for run in self.runs(identity) if any(rank(run)) or run.info.status != "RUNNING"]
            run = max(known, key=rank, default=None) or self.client.create_run(
                self.experiment_id, run_name=name, tags={**identity, **place}
            )
            is_sent, is_there = rank(run)
            if not is_there and not (is_sent and SENT_TAG in parent.data.tags):
                self.client.update_run(run.info.run_id, name=name)
                self.tags(run.info.run_id, place)
            if not is_sent and run.info.status != "RUNNING":  # it is complete only with the tag
                self.client.update_run(run.info.run_id, status="RUNNING")
        if is_sent:
            return run
        changed = [RunTag(key, value) for key, value in (tags or {}).items() if run.data.tags.get(key) != value]
        texts = {key: without_password(str(value)) for key, value in flatten(params).items()}
        # MLflow accepts no second value of a parameter: those of the command that opened the run stay.
        lacking = [Param(key, text) for key, text in texts.items() if key not in run.data.params]
        self.client.log_batch(run.info.run_id, tags=changed)
        for start in range(0, len(lacking), PARAMS_A_REQUEST):
            self.client.log_batch(run.info.run_id, params=lacking[start : start + PARAMS_A_REQUEST])
        return run

    def runs(self, tags: Mapping[str, str]) -> list[Any]:
        """Returns the experiment's runs that have these tags."""
        wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        return list(self.client.search_runs([self.experiment_id], wanted, max_results=RUNS_A_REQUEST))

    def curves(self, run: str, lines: Sequence[Mapping[str, Any]], last_at_s: float) -> None:
        """Sends the lines of a run's `metrics.jsonl` after the last step that MLflow has.

        The last line was written at `last_at_s`, in seconds since 1970.
        """
        from mlflow.entities import Metric

        if run not in self._last_steps:
            self._last_steps[run] = {
                name: max(point.step for point in self.client.get_metric_history(run, name))
                for name in self.client.get_run(run).data.metrics
            }
        last = self._last_steps[run]
        began_s = last_at_s - max((line["train_s"] for line in lines), default=0.0)
        points = [
            Metric(name, float(value), int((began_s + line["train_s"]) * 1000), line["update"])
            for line in lines
            for name, value in line.items()
            if name != "update" and isinstance(value, int | float) and line["update"] > last.get(name, -1)
        ]
        for start in range(0, len(points), METRICS_A_REQUEST):
            batch = points[start : start + METRICS_A_REQUEST]
            self.client.log_batch(run, metrics=batch)
            last |= {point.key: point.step for point in batch}

    def results(
        self, run: str, figures: Mapping[str, float], series: Mapping[str, Mapping[int, float]] | None = None
    ) -> None:
        """Sends missing final metrics, and missing metrics by update that were measured afterwards."""
        from mlflow.entities import Metric

        known, now_ms = self.client.get_run(run).data.metrics, int(time.time() * 1000)
        points = [Metric(name, float(value), now_ms, 0) for name, value in figures.items() if known.get(name) != value]
        for name, by_update in (series or {}).items():
            there = {point.step for point in self.client.get_metric_history(run, name)} if name in known else set()
            points += [
                Metric(name, value, now_ms, update) for update, value in by_update.items() if update not in there
            ]
        for start in range(0, len(points), METRICS_A_REQUEST):
            self.client.log_batch(run, metrics=points[start : start + METRICS_A_REQUEST])

    def tags(self, run: str, tags: Mapping[str, str]) -> None:
        """Sets tags of a run, replacing those it has."""
        from mlflow.entities import RunTag

        self.client.log_batch(run, tags=[RunTag(*tag) for tag in tags.items()])

    def end(self, run: str, status: Status, sent: str = "") -> None:
        """Closes a run, if it is open; one that has got everything of `sent`, its identity, stays as it is."""
        if sent:
            self.client.set_tag(run, SENT_TAG, sent)
        if self.client.get_run(run).info.status == "RUNNING":
            self.client.set_terminated(run, status)

    def has_all(self, identities: Collection[str]) -> bool:
        """Returns whether a SQLite file has a complete run of each identity, without importing MLflow for that.

        Of a server it is not known, and False.
        """
        file = sqlite_file(self.uri)
        if file is None:
            return False
        try:
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
                complete = (
                    "select tags.value from runs join tags using (run_uuid) "
                    "where lifecycle_stage = 'active' and key = ?"
                )
                return {*identities} <= {identity for (identity,) in database.execute(complete, (SENT_TAG,))}
        except sqlite3.Error:
            return False

    @cached_property
    def client(self) -> Any:
        """MLflow's client, with MLflow's own logging turned down."""
        from mlflow.tracking import MlflowClient  # takes 2 to 3 s

        _silence()
        return MlflowClient(tracking_uri=self.uri)

    @cached_property
    def experiment_id(self) -> str:
        """The experiment, created if there is none."""
        from mlflow.exceptions import MlflowException

        known = self.client.get_experiment_by_name(self.experiment)
        if known is None:
            folder = (self._root.absolute() / "mlartifacts").as_uri() if sqlite_file(self.uri) else None
            tags = {"mlflow.experimentKind": "custom_model_development"}  # how the UI shows it
            try:
                return str(self.client.create_experiment(self.experiment, folder, tags))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            known = self.client.get_experiment_by_name(self.experiment)  # another command was faster
        if known.lifecycle_stage == "deleted":
            self.client.restore_experiment(known.experiment_id)
        return str(known.experiment_id)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lets commands that share a SQLite file make its tables, or look up and create runs, one at a time."""
        database = sqlite_file(self.uri)
        if database is None:
            yield
            return
        with guarded(database.parent / ".locks"):
            if not database.exists():
                _make_tables(database)
            yield

    def _answers(self) -> bool:
        """Probes the server. Raises UserError if waiting would not help: wrong address, file or password."""
        try:
            self.client.search_experiments(max_results=1)
        except Exception as error:
            status = error.get_http_status_code() if hasattr(error, "get_http_status_code") else 0
            is_wrong = self.uri.startswith("sqlite") or status in (400, 401, 403, 404)
            if not self._has_answered and (is_wrong or isinstance(error, ImportError)):
                place, reason = public_address(self.uri), reason_of(error, self.uri)
                remedy = "check MLFLOW_TRACKING_URI or unset it"
                if sqlite_file(self.uri) and not os.environ.get("MLFLOW_TRACKING_URI"):
                    remedy = "move the file elsewhere; a new one is filled from the store"
                raise UserError(f"MLflow at {place} does not answer ({reason}); {remedy}") from None
            return False
        self._has_answered = True
        return True

    def _warn(self, error: Exception) -> None:
        if not self.has_warned:
            logger.warning(
                "MLflow at %s %s (%s); the run goes on, and the same command sends from the store what is missing",
                public_address(self.uri),
                "does not answer" if self.is_away else "does not take what it is sent",
                reason_of(error, self.uri),
            )
        self.has_warned = True


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
    SqlAlchemyStore(sqlite_uri(making), "./mlruns").engine.dispose()
    os.replace(making, database)
