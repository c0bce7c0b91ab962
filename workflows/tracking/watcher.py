"""Shows a running workflow in MLflow, and exports it at its end.

Whatever MLflow or the store cannot do meanwhile causes one warning. The same command later sends what is missing.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from typing import Any

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from workflows.engine.dag import Step
from workflows.engine.interface import Watcher
from workflows.tables.corpus import CorpusReport
from workflows.tracking.export import Exporter, Workflow
from workflows.tracking.server import Server

LIVE_S = 5.0
"""Seconds between exports of running models."""
CHECK_S = 10.0
"""Seconds that the start waits for MLflow."""
NOT_EXPORTED = "not exported: the store lacks its results, or MLflow rejected them"


class MlflowWatcher(Watcher):
    """Exports the models while they run, in a thread, so that nothing waits for MLflow before `finish`."""

    def __init__(self, server: Server, workflow: Workflow, store: Store) -> None:
        """Raises UserError if the address or the password is wrong, unless MLflow has the workflow already."""
        self._server, self._models = server, workflow.models
        self._exporter = Exporter(server, workflow, store)
        self._is_complete = server.is_complete(workflow.fingerprint)
        self._news: set[str] = set()
        """Names of the models with news since the last export."""
        self._next_export_s = 0.0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mlflow")
        if not self._is_complete:
            checked = self._thread.submit(server.check)
            self._thread.submit(lambda: None if checked.exception() else self._server.attempt(self._exporter.open))
            with suppress(TimeoutError):
                checked.result(CHECK_S)

    def begin(self, steps: Collection[Step[Artifact]], cached: Sequence[Step[Artifact]]) -> None:
        """Exports what is cached."""
        self._news |= {*self._models} if steps else set()
        self._is_complete = self._is_complete and not steps

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Notes new metrics of a run."""
        self._news |= self._models_of(step) if "metrics" in event else set()

    def finished(self, step: Step[Artifact], summary: str) -> None:
        """Notes new results."""
        self._news |= self._models_of(step)

    def idle(self) -> None:
        """Exports models with news every `LIVE_S` seconds."""
        if self._news and time.monotonic() > self._next_export_s:
            self._next_export_s = inf  # until these have been exported
            self._thread.submit(self._export_news, frozenset(self._news))
            self._news.clear()

    def failed(self, name: str, results: Sequence[Step[Artifact]], why: str) -> None:
        """Sends the reason and ends the model's run."""
        self._thread.submit(self._server.attempt, partial(self._exporter.model, name, why))

    def finish(
        self,
        table: Artifact,
        main_metrics: Mapping[str, float],
        reports: Mapping[str, CorpusReport],
        failures: Mapping[str, str],
    ) -> None:
        """Exports all that is missing and ends all runs. If MLflow did not answer before, tries once more."""
        self._thread.shutdown(cancel_futures=True)
        if not self._is_complete:
            self._server.next_request_s = 0.0
            for name in self._models:
                self._server.attempt(partial(self._exporter.model, name, failures.get(name, "")))
            self._server.attempt(partial(self._exporter.table, table, main_metrics, reports))
            self._server.attempt(partial(self._exporter.stop, "FAILED", NOT_EXPORTED))

    def close(self, error: BaseException) -> None:
        """Ends all runs after an error. What has happened before is sent, unless the user stopped the workflow."""
        is_stopped = isinstance(error, KeyboardInterrupt)
        self._thread.shutdown(cancel_futures=is_stopped)
        why = str(error).strip() or type(error).__name__
        self._server.attempt(partial(self._exporter.stop, "KILLED" if is_stopped else "FAILED", why))

    def _models_of(self, step: Step[Artifact]) -> set[str]:
        return {name for name, model in self._models.items() if step in model.steps}

    def _export_news(self, names: Collection[str]) -> None:
        def export(name: str) -> None:
            with suppress(UserError):  # damaged artifacts are rebuilt for the table
                self._exporter.model(name)

        for name in names:
            self._server.attempt(partial(export, name))
        self._next_export_s = time.monotonic() + LIVE_S


@contextmanager
def tracked(server: Server, workflow: Workflow, store: Store) -> Iterator[MlflowWatcher]:
    """Opens a workflow's runs, and ends them if the body fails. The body must call `finish` at its end."""
    watcher = MlflowWatcher(server, workflow, store)
    try:
        yield watcher
    except BaseException as error:
        watcher.close(error)
        raise
