"""Makes the artifacts of a DAG that are missing (`workflows.engine.execution`), and keeps watchers informed."""

import logging
from collections.abc import Sequence

from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from workflows.engine.dag import A, Step, to_run
from workflows.engine.events import Watcher

logger = logging.getLogger(__name__)


def run(
    targets: Sequence[Step[A]], store: Store, watchers: Sequence[Watcher] = (), address: str | None = None
) -> list[A]:
    """Returns the artifacts of `targets`, making those not in `store`. Starts Ray only if there is work to do.

    Other workflows may use the store at the same time; each step is still made only once. If a step fails, the others
    are stopped and its error is raised; KeyboardInterrupt stops all of them too. Whatever was published stays, so the
    same call continues from there.
    """
    missing = missing_steps(targets, store)
    if missing:
        from workflows.engine.execution import execute  # Ray is slow to import, and often nothing is missing

        execute(missing, store, watchers, address)
    else:
        for watcher in watchers:
            watcher.begin([], [*targets])
            watcher.end(None)
    return [step.published(store) for step in targets]


def missing_steps(targets: Sequence[Step[Artifact]], store: Store) -> list[Step[Artifact]]:
    """Returns the steps that must run (`to_run`), and logs a warning for each damaged folder."""
    found: dict[str, str | None] = {}
    missing = to_run(targets, store, found)
    for step in missing:
        if damage := found.get(step.fingerprint):
            logger.warning("%s is damaged (%s): running %s again", store.find(step.name), damage, step.label)
    return missing
