"""Shows a running workflow in MLflow, and exports it at its end.

Whatever MLflow or the store cannot do meanwhile causes one warning. The same command later sends what is missing.
"""

import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from typing import Any

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from workflows.engine.dag import Step
from workflows.engine.runner import Watcher
from workflows.reports.corpus import CorpusReport
from workflows.tracking.export import Exporter, Status, Workflow
from workflows.tracking.server import Server

LIVE_S = 5.0
"""Seconds between exports of running models."""
NOT_EXPORTED = "not exported: the store lacks its results, or MLflow rejected them"


class MlflowWatcher(Watcher):
    """Exports the models while they run, in a thread, so that nothing waits for MLflow before `finish`."""

    def __init__(self, server: Server, workflow: Workflow, store: Store) -> None:
        """Raises UserError if the address or the password is wrong, unless MLflow has the workflow already."""
        self._server, self._models = server, workflow.models
        self._exporter = Exporter(server, workflow, store)
        mark = server.complete_mark(workflow.fingerprint)
        self._is_complete = mark is not None and mark.exists()
        self._news: set[str] = set()
        """Names of the models with news since the last export."""
        self._next_export_s = 0.0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mlflow")
        if not self._is_complete:
            server.check()
            self._thread.submit(self._attempt, self._exporter.open)

    def begin(self, steps: Collection[Step[Artifact]], cached: Sequence[Step[Artifact]]) -> None:
        """Exports what is cached."""
        self._news |= {*self._models} if steps else set()

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
        self._thread.submit(self._attempt, partial(self._exporter.model, name, why))

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
            self._attempt(self._exporter.open, again=True)
            for name in self._models:
                self._attempt(partial(self._exporter.model, name, failures.get(name, "")))
            self._attempt(partial(self._exporter.table, table, main_metrics, reports))
            self._attempt(partial(self._exporter.stop, "FAILED", NOT_EXPORTED))

    def close(self, status: Status, error: BaseException) -> None:
        """Ends all runs after an error."""
        self._thread.shutdown(cancel_futures=status == "KILLED")
        why = str(error).strip() or type(error).__name__
        details = "" if isinstance(error, UserError) else "".join(traceback.format_exception(error))
        self._attempt(partial(self._exporter.stop, status, why, details))

    def _models_of(self, step: Step[Artifact]) -> set[str]:
        return {name for name, model in self._models.items() if step in model.steps}

    def _export_news(self, names: Collection[str]) -> None:
        for name in names:
            self._attempt(partial(self._export_written, name))
        self._next_export_s = time.monotonic() + LIVE_S

    def _export_written(self, name: str) -> None:
        with suppress(UserError):  # damaged artifacts are rebuilt for the table
            self._exporter.model(name)

    def _attempt(self, send: Callable[[], object], *, again: bool = False) -> None:
        def sending() -> None:
            try:
                send()
            except Exception:
                self._exporter.forget()
                raise

        self._server.attempt(sending, again=again)


@contextmanager
def tracked(server: Server, workflow: Workflow, store: Store) -> Iterator[MlflowWatcher]:
    """Opens a workflow's runs, and ends them if the body fails. The body must call `finish` at its end."""
    watcher = MlflowWatcher(server, workflow, store)
    try:
        yield watcher
    except BaseException as error:
        watcher.close("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED", error)
        raise
