"""Makes the artifacts of a DAG that are missing, and keeps watchers informed. Ray is loaded if there are any.

(table,) = run([table_step], store, watchers)
"""

from collections.abc import Sequence
from typing import Any

from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from workflows.engine.dag import A, Imported, Step, to_run

execute = Imported("workflows.engine.execution:execute")


class Watcher:
    """Receives the events of the steps; its methods are called in the driver, one at a time."""

    def begin(self, steps: Sequence[Step[Artifact]], cached: Sequence[Step[Artifact]]) -> None:
        """Called before anything runs, with the steps to run and those that are in the store."""

    def started(self, step: Step[Artifact]) -> None:
        """Called when work on the step has begun."""

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Called with progress or metrics (pipeline.store.artifact.Context.emit)."""

    def finished(self, step: Step[Artifact], summary: str) -> None:
        """Called when the step's artifact has been published, with a few words about it."""

    def failed(self, results: Sequence[Step[Artifact]]) -> None:
        """Called when a model of a grid will not have all its `results`."""

    def idle(self) -> None:
        """Called a few times per second."""

    def end(self, error: BaseException | None) -> None:
        """Called at the end, with the `error` that stopped the work, if any."""


def run(
    targets: Sequence[Step[A]], store: Store, watchers: Sequence[Watcher] = (), address: str | None = None
) -> list[A]:
    """Returns the artifacts of `targets`, making those not in `store`. Starts Ray only if there is work to do.

    Other workflows may use the store at the same time; each step is still made only once. If a step fails, the others
    are stopped and its error is raised; KeyboardInterrupt stops all of them too. Whatever was published stays, so the
    same call continues from there.
    """
    missing = [*to_run(targets, store)]
    if missing:
        execute(missing, store, watchers, address)
    else:
        for watcher in watchers:
            watcher.begin([], [*targets])
            watcher.end(None)
    return [step.published(store) for step in targets]
