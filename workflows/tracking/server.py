"""One experiment of a tracking server, or of a SQLite file.

server = Server(default_uri(folder), "table2", folder)
server.check_address()                              # UserError if the address, the password or the file is wrong
server.attempt(lambda: server.client.set_tag(run, "profile", "embedded"))   # one warning if it cannot be sent
"""

import logging
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import cached_property
from itertools import product
from pathlib import Path
from shutil import rmtree
from typing import Any
from urllib.parse import quote

from pipeline.errors import UserError
from pipeline.store.locks import guarded
from workflows.tracking.addresses import causes, public_address, reason_of, sqlite_uri

logger = logging.getLogger(__name__)

SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""Defaults for MLflow's settings. Its own report usage, wait for minutes, print addresses with passwords, and warn
without git."""
LOCATIONS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
    ("datasets", "dataset_source"),
)
"""The tables and columns of MLflow's SQLite file with absolute addresses."""
WORKFLOW_TAG, TRAINING_TAG = "aiayn.workflow", "aiayn.training"
AWAY_S = 60.0
"""Seconds before the next request to a server that did not answer."""


class Server:
    """One experiment of MLflow. The first request imports MLflow and opens its store."""

    def __init__(self, uri: str, experiment: str, root: Path) -> None:
        """`root` is the folder of MLflow's files if `uri` is a SQLite file."""
        self.uri, self.experiment = uri, experiment
        self.has_file = uri.startswith("sqlite")
        self._database, self._files = root.absolute() / "mlflow.db", root.absolute() / "mlartifacts"
        self._marks, self._has_own_file = self._files / ".complete", uri == sqlite_uri(self._database)
        self.next_request_s = 0.0
        """When to ask a server again that did not answer, by the monotonic clock."""
        self._has_warned = False
        os.environ.update({name: value for name, value in SETTINGS.items() if name not in os.environ})

    def is_complete(self, workflow: str) -> bool:
        """Whether the store's own SQLite file, in this place, has all of a workflow; does not import MLflow."""
        if not self._database.exists():  # the user has removed it
            rmtree(self._marks, ignore_errors=True)
        mark = self._marks / workflow
        return self._has_own_file and mark.exists() and mark.read_text(encoding="utf-8") == self._files.as_uri()

    def mark_complete(self, workflow: str) -> None:
        """Notes that the store's own SQLite file has all of a workflow."""
        if self._has_own_file:
            self._marks.mkdir(parents=True, exist_ok=True)
            (self._marks / workflow).write_text(self._files.as_uri(), encoding="utf-8")

    def check_address(self) -> None:
        """Raises UserError if the address, the password or the SQLite file is wrong. Warns of a server that is away.

        Does not import MLflow for the store's own file.
        """
        try:
            if not self._has_own_file:
                self.client.search_experiments(max_results=1)
            elif self._database.exists():
                with closing(sqlite3.connect(self._database, timeout=60)) as database:
                    database.execute("SELECT count(*) FROM sqlite_master")
        except Exception as error:  # MLflow, SQLAlchemy, databases and HTTP have different errors
            if not self._is_away(error):
                raise self.rejected(error) from None
            self._warn(error)

    def rejected(self, error: Exception) -> UserError:
        """Returns the error of a command that cannot go on without MLflow."""
        remedy = "correct or unset MLFLOW_TRACKING_URI"
        if self.has_file and not os.environ.get("MLFLOW_TRACKING_URI"):
            remedy = "move the file elsewhere; a new one will be filled from the store"
        place, reason = public_address(self.uri), reason_of(error, self.uri)
        return UserError(f"MLflow at {place} does not answer ({reason}); {remedy}")

    def attempt(self, send: Callable[[], object]) -> None:
        """Calls `send` unless the server has not answered within the last `AWAY_S`, and warns of the first failure.

        Commands of one store send in turn: two that look for a run at once would both create it.
        """
        if time.monotonic() > self.next_request_s:
            try:
                with guarded(self._files.parent / ".locks" / "mlflow"):
                    send()
            except Exception as error:
                self._warn(error)

    def _is_away(self, error: Exception) -> bool:
        """Whether a server did not answer, although its address is valid. An error of the network names no file."""
        kinds = [*causes(error)]
        status = error.get_http_status_code() if hasattr(error, "get_http_status_code") else 0
        is_invalid = self.has_file or any(isinstance(cause, ValueError | ImportError) for cause in kinds)
        network = [cause for cause in kinds if isinstance(cause, OSError) and cause.filename is None]
        return not is_invalid and (status >= 500 or bool(network))

    def _warn(self, error: Exception) -> None:
        if is_away := self._is_away(error):
            self.next_request_s = time.monotonic() + AWAY_S
        if not self._has_warned:
            logger.warning(
                "MLflow at %s %s (%s); continuing without it; rerun the same command later to send what is missing",
                public_address(self.uri),
                "does not answer" if is_away else "lacks data",
                reason_of(error, self.uri),
            )
        self._has_warned = True

    @cached_property
    def client(self) -> Any:
        """MLflow's client, with MLflow's logging turned down."""
        from mlflow.tracking import MlflowClient  # takes 2 to 3 s; sets its own log levels

        for name in ("mlflow.store.db.utils", "alembic", "urllib3.connectionpool"):
            logging.getLogger(name).setLevel(logging.ERROR)  # tables that it creates, connections that it retries
        if not self.has_file:
            return MlflowClient(tracking_uri=self.uri)
        with guarded(self._files):  # MLflow creates its tables without a lock, and one that is killed cannot go on
            if self._has_own_file and not self._database.exists():
                aside = self._files / f".making-{self._database.name}"
                aside.unlink(missing_ok=True)
                MlflowClient(tracking_uri=sqlite_uri(aside)).search_experiments(max_results=1)
                os.replace(aside, self._database)
            client = MlflowClient(tracking_uri=self.uri)
            client.search_experiments(max_results=1)
        return client

    @cached_property
    def experiment_id(self) -> str:
        """The experiment's id. Creates the experiment if there is none, and restores a deleted one.

        If the store has been moved or copied, all locations in its SQLite file follow it before.
        """
        if self._has_own_file:
            self._follow()
        known = self.client.get_experiment_by_name(self.experiment)
        if known is None:
            folder = self._files.as_uri() if self.has_file else None
            tags = {"mlflow.experimentKind": "custom_model_development"}  # for the UI
            return str(self.client.create_experiment(self.experiment, folder, tags))
        if known.lifecycle_stage == "deleted":
            self.client.restore_experiment(known.experiment_id)
        return str(known.experiment_id)

    def page(self, workflow: str) -> str:
        """Returns the place of a workflow's models in MLflow's interface. Raises UserError if MLflow cannot have it."""
        if self._has_own_file and not self._database.exists():
            raise UserError(f"{self._database}: no MLflow database; the table's command, typed again, fills one")
        try:
            known = self.client.get_experiment_by_name(self.experiment)
        except Exception as error:  # as in `check_address`
            raise self.rejected(error) from None
        if known is None or known.lifecycle_stage == "deleted":
            raise UserError(f"no experiment {self.experiment} in MLflow; the table's command, typed again, makes one")
        models = f"tags.`{WORKFLOW_TAG}` = '{workflow}' and tags.`{TRAINING_TAG}` != ''"
        found = self.client.search_runs([known.experiment_id], models, max_results=1)  # none: Table 1
        # In order of time, MLflow would show the table's run, which has no curves, in place of its models.
        shown = f"&orderByKey=attributes.%60run_name%60&orderByAsc=true&searchFilter={quote(models)}" if found else ""
        return f"#/experiments/{known.experiment_id}/runs?compareRunsMode=CHART{shown}"

    def _follow(self) -> None:
        """Replaces another folder in all addresses by this one. MLflow's API cannot change any."""
        from mlflow.entities import ViewType

        here = self._files.as_uri()
        found = {each.artifact_location for each in self.client.search_experiments(ViewType.ALL)}
        moved = [old for old in found - {here} if old.endswith(f"/{self._files.name}")]
        with closing(sqlite3.connect(self._database, timeout=60)) as database, database:
            for old, (table, column) in product(moved, LOCATIONS):
                folders = (where.removesuffix(self._files.name) for where in (old, here))
                database.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (*folders,))
