"""Builds the missing artifacts of a DAG and notifies watchers. Ray is loaded only if any are missing.

    (table,) = run([table_step], store, watchers)
    table, failures = run_models({"base": Model([perplexity, scores], settings)}, table_of, store, watchers)

Artifacts go to the store: models share the prepared data, and a failed or interrupted run continues from its newest
checkpoint, in this command or the next.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from workflows.engine.dag import A, Imported, Step, to_run
from workflows.engine.reasons import Reason, reasons

execute = Imported("workflows.engine.execution:execute")
execute_models = Imported("workflows.engine.models:execute_models")


class Watcher:
    """Receives the events of the steps; its methods are called in the driver, one at a time."""

    def begin(self, steps: Mapping[Step[Artifact], Reason], cached: Sequence[Step[Artifact]]) -> None:
        """Called before anything runs, with the steps to run and why, and inputs that the store has."""

    def started(self, step: Step[Artifact]) -> None:
        """Called when work on the step has begun."""

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Called with progress or metrics (pipeline.store.artifact.Context.emit)."""

    def finished(self, step: Step[Artifact], summary: str) -> None:
        """Called when the step's artifact has been published, with a few words about it."""

    def failed(self, name: str, results: Sequence[Step[Artifact]], why: str) -> None:
        """Called when the model of this name will not have all its `results`."""

    def idle(self) -> None:
        """Called a few times per second."""

    def end(self, error: BaseException | None) -> None:
        """Called at the end, with the `error` that stopped the work, if any."""


@dataclass(frozen=True)
class Model:
    """A model of a table, which succeeds with all its results or fails with a reason, independently of other models."""

    results: Sequence[Step[Artifact]]
    training: TrainingSettings


def run(
    targets: Sequence[Step[A]], store: Store, watchers: Sequence[Watcher] = (), address: str | None = None
) -> list[A]:
    """Returns the artifacts of `targets`, making those not in `store`. Starts Ray only if there is work to do.

    Other workflows may use the store at the same time; each step is still made only once. If a step fails, the others
    are stopped and its error is raised; KeyboardInterrupt stops all of them too. Whatever was published stays, so the
    same call continues from there.
    """
    missing = reasons(to_run(targets, store), store)
    if missing:
        execute(missing, store, watchers, address)
    else:
        for watcher in watchers:
            watcher.begin({}, [*targets])
            watcher.end(None)
    return [step.published(store) for step in targets]


def run_models(
    models: Mapping[str, Model],
    table: Callable[[Mapping[str, str]], Step[A]],
    store: Store,
    watchers: Sequence[Watcher] = (),
    address: str | None = None,
    first: Sequence[Step[Artifact]] = (),
    beside: Sequence[Step[Artifact]] = (),
    tuned: bool = False,
) -> tuple[A, Mapping[str, str]]:
    """Runs the missing steps of a table of models; returns the table and the failures by model name.

    `table` returns its step, given the failures. The steps `first` run before all others, `beside` along with the
    models. As many models run at once as the cluster fits; `tuned` makes them trials of Ray Tune. Raises UserError if
    all models fail, or a step that belongs to no model.
    """
    target, failures = table({}), dict[str, str]()
    missing = reasons(to_run([target], store), store)
    if missing:
        failures = execute_models(models, table, missing, store, watchers, address, first, beside, tuned)
        target = table(failures)
    (artifact,) = run([target], store, () if missing else watchers, address)
    return artifact, failures
