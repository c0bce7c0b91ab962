"""Writes missing data to the runs of one MLflow experiment. All calls are idempotent.

    tracker = Tracker(default_uri(folder), "table2", folder)
    tracker.attempt(lambda: tracker.open({WORKFLOW_TAG: fingerprint}, "table2 embedded", {"profile": "embedded"}))

Only drivers write, since SQLite does not cope with many writers. Several drivers may share a SQLite file. Runs are
identified by the fingerprint in their tags. Curves continue after the server's last step.
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
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # `Tracker.attempt` retries
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""Defaults for MLflow's settings. Its own defaults wait for minutes, print a run's address with its password, and warn
without git."""
AWAY_S = 60.0
"""Seconds before the next request to a server that did not answer."""
METRICS_A_REQUEST, PARAMS_A_REQUEST, RUNS_A_REQUEST = 1000, 100, 50_000
"""MLflow's limits for a request."""
WORKFLOW_TAG, TRAINING_TAG, PARENT_TAG = "aiayn.workflow", "aiayn.training", "mlflow.parentRunId"
MEASURED_TAG = "aiayn.measured"
"""The tag for the identity of a run's model and its measurements."""
SENT_TAG = "aiayn.sent"
"""The tag of complete runs: the workflow's fingerprint, or the identity of the model's measurements."""


class Tracker:
    """Writes to one MLflow experiment. The first call imports MLflow and opens its store."""

    def __init__(self, uri: str, experiment: str, root: Path) -> None:
        """`root` is the folder of MLflow's files if `uri` is a SQLite file. Raises UserError if `uri` is malformed."""
        if is_malformed(uri):
            raise UserError(f"MLFLOW_TRACKING_URI: {public_address(uri)} is not an address; use e.g. http://HOST:5000")
        self.uri, self.experiment, self._root = uri, experiment, root
        self.is_away = False
        """Whether the server did not answer. Then nothing is sent for `AWAY_S`, unless this is reset."""
        self._asked_s = 0.0
        """When it did not answer, by the monotonic clock."""
        self.has_warned = False
        """Whether anything could not be sent."""
        self._has_answered = False
        self._last_steps: dict[str, dict[str, int]] = {}
        """MLflow's last step by run and metric."""
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)

    def attempt(self, send: Callable[[], object]) -> bool:
        """Calls `send` unless the server is away; returns whether it succeeded. Warns of the first failure.

        Retries a lost connection or a rejected request at once, and a server that does not answer after `AWAY_S`.
        Raises UserError if the first call fails because of a wrong address or password.
        """
        if self.is_away and time.monotonic() < self._asked_s + AWAY_S:
            return False
        for is_second in (False, True):  # connections get lost, and databases reject concurrent writes
            try:
                send()
                self._has_answered, self.is_away = True, False
                return True
            except UserError:
                raise
            except Exception as error:  # MLflow, SQLAlchemy, databases and HTTP have different errors
                self._last_steps.clear()  # it may return without its data
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
        """Returns the run with the tags `identity`, creating it or adding missing data.

        With `parent`, the run becomes its child. A complete or abandoned run moves here from its earlier parent, rather
        than being sent again, unless `parent` is complete, too.
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
            if not is_sent and run.info.status != "RUNNING":  # only the tag marks it as complete
                self.client.update_run(run.info.run_id, status="RUNNING")
        if is_sent:
            return run
        changed = [RunTag(key, value) for key, value in (tags or {}).items() if run.data.tags.get(key) != value]
        texts = {key: without_password(str(value)) for key, value in flatten(params).items()}
        # MLflow rejects changed parameters: those of the command that opened the run stay.
        lacking = [Param(key, text) for key, text in texts.items() if key not in run.data.params]
        self.client.log_batch(run.info.run_id, tags=changed)
        for start in range(0, len(lacking), PARAMS_A_REQUEST):
            self.client.log_batch(run.info.run_id, params=lacking[start : start + PARAMS_A_REQUEST])
        return run

    def runs(self, tags: Mapping[str, str]) -> list[Any]:
        """Returns the experiment's runs with these tags."""
        wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        return list(self.client.search_runs([self.experiment_id], wanted, max_results=RUNS_A_REQUEST))

    def curves(self, run: str, lines: Sequence[Mapping[str, Any]], last_at_s: float) -> None:
        """Sends the lines of a run's `metrics.jsonl` after MLflow's last step.

        `last_at_s` is when the last line was written, in seconds since 1970.
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
        """Sends missing final metrics, and missing metrics by update from after the run."""
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
        """Sets tags of a run, replacing existing values."""
        from mlflow.entities import RunTag

        self.client.log_batch(run, tags=[RunTag(*tag) for tag in tags.items()])

    def end(self, run: str, status: Status, sent: str = "") -> None:
        """Closes a run if it is open. `sent` is its identity if all of its data was sent."""
        if sent:
            self.client.set_tag(run, SENT_TAG, sent)
        if self.client.get_run(run).info.status == "RUNNING":
            self.client.set_terminated(run, status)

    def has_all(self, identities: Collection[str]) -> bool:
        """Whether a SQLite file has a complete run of each identity, without importing MLflow. False for a server."""
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
        """MLflow's client, with MLflow's logging turned down."""
        from mlflow.tracking import MlflowClient  # takes 2 to 3 s

        _silence()
        return MlflowClient(tracking_uri=self.uri)

    @cached_property
    def experiment_id(self) -> str:
        """The experiment's id. Creates the experiment if there is none."""
        from mlflow.exceptions import MlflowException

        known = self.client.get_experiment_by_name(self.experiment)
        if known is None:
            folder = (self._root.absolute() / "mlartifacts").as_uri() if sqlite_file(self.uri) else None
            tags = {"mlflow.experimentKind": "custom_model_development"}  # for the UI
            try:
                return str(self.client.create_experiment(self.experiment, folder, tags))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            known = self.client.get_experiment_by_name(self.experiment)  # another command created it
        if known.lifecycle_stage == "deleted":
            self.client.restore_experiment(known.experiment_id)
        return str(known.experiment_id)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Serializes commands that share a SQLite file while they create its tables, or look up and create runs."""
        database = sqlite_file(self.uri)
        if database is None:
            yield
            return
        with guarded(database.parent / ".locks"):
            if not database.exists():
                _make_tables(database)
            yield

    def _answers(self) -> bool:
        """Probes the server. Raises UserError if a retry would not help: wrong address, file or password."""
        try:
            self.client.search_experiments(max_results=1)
        except Exception as error:
            status = error.get_http_status_code() if hasattr(error, "get_http_status_code") else 0
            is_wrong = self.uri.startswith("sqlite") or status in (400, 401, 403, 404)
            if not self._has_answered and (is_wrong or isinstance(error, ImportError)):
                place, reason = public_address(self.uri), reason_of(error, self.uri)
                remedy = "correct or unset MLFLOW_TRACKING_URI"
                if sqlite_file(self.uri) and not os.environ.get("MLFLOW_TRACKING_URI"):
                    remedy = "move the file elsewhere; a new one will be filled from the store"
                raise UserError(f"MLflow at {place} does not answer ({reason}); {remedy}") from None
            return False
        self._has_answered = True
        return True

    def _warn(self, error: Exception) -> None:
        if not self.has_warned:
            logger.warning(
                "MLflow at %s %s (%s); continuing without it; rerun the same command later to send what is missing",
                public_address(self.uri),
                "does not answer" if self.is_away else "rejects data",
                reason_of(error, self.uri),
            )
        self.has_warned = True


def _silence() -> None:
    """Silences MLflow's log of each table it creates and of each failed connection."""
    # MLflow sets its own log levels when imported.
    for name, level in {"mlflow.store.db.utils": logging.CRITICAL, "alembic": logging.WARNING}.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)


def _make_tables(database: Path) -> None:
    """Creates MLflow's tables in a temporary file, because MLflow cannot continue from a killed process's tables."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    _silence()
    making = database.with_name(f".making-{database.name}")
    making.unlink(missing_ok=True)
    SqlAlchemyStore(sqlite_uri(making), "./mlruns").engine.dispose()
    os.replace(making, database)
