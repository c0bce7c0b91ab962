"""Builds the missing artifacts of a DAG and notifies watchers. Imports Ray only if there are any.

    (table,) = run([table_step], store, watchers)
    table, failures = run_models({"base": Model([perplexity, scores], settings)}, table_of, store, watchers)

Models share the prepared data in the store. A failed or interrupted run resumes from its newest checkpoint, in this
command or the next.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from workflows.engine.dag import A, Imported, Step
from workflows.engine.plan import Reason, reasons, to_run

execute = Imported("workflows.engine.execution:execute")
execute_models = Imported("workflows.engine.models:execute_models")


class Watcher:
    """Receives the events of the steps. Its methods are called in the driver, one at a time."""

    def begin(self, steps: Mapping[Step[Artifact], Reason], cached: Sequence[Step[Artifact]]) -> None:
        """Called before anything runs, with the steps to run and the reasons, and with cached inputs."""

    def started(self, step: Step[Artifact]) -> None:
        """Called when work on the step has begun."""

    def event(self, step: Step[Artifact], event: dict[str, Any]) -> None:
        """Called with progress or metrics (pipeline.store.artifact.Context.emit)."""

    def finished(self, step: Step[Artifact], summary: str) -> None:
        """Called when the step's artifact has been published, with its summary."""

    def failed(self, name: str, results: Sequence[Step[Artifact]], why: str) -> None:
        """Called when a model has failed; `results` are its final steps."""

    def idle(self) -> None:
        """Called a few times per second."""

    def end(self) -> None:
        """Called at the end, also of a workflow that an error stopped."""


@dataclass(frozen=True)
class Model:
    """A table's model. It succeeds or fails as a whole, independently of other models."""

    results: Sequence[Step[Artifact]]
    training: TrainingSettings


def run(
    targets: Sequence[Step[A]],
    store: Store,
    watchers: Sequence[Watcher] = (),
    address: str | None = None,
    earlier: Collection[str] | None = None,
) -> list[A]:
    """Returns the artifacts of `targets`, building those not in `store`. Starts Ray only if there is work to do.

    The watchers get the reasons by comparison with the artifacts `earlier` (`reasons`).

    Other workflows may share the store; each step still runs only once. If a step fails, the others are stopped and its
    error is raised. KeyboardInterrupt stops them, too. Published artifacts stay, so the same call continues from there.
    """
    missing = reasons(to_run(targets, store), store, earlier)
    if not missing:
        for watcher in watchers:
            watcher.begin({}, [*targets])
            watcher.end()
    while missing:
        execute(missing, store, watchers, address)
        missing = reasons(to_run(targets, store), store, earlier)  # of rebuilt text that differs from the former
    return [step.published(store) for step in targets]


def run_models(
    models: Mapping[str, Model],
    table: Callable[[Mapping[str, str]], Step[A]],
    store: Store,
    watchers: Sequence[Watcher] = (),
    address: str | None = None,
    tuned: bool = False,
    earlier: Collection[str] | None = None,
) -> tuple[A, Mapping[str, str]]:
    """Runs the missing steps of a table of models; returns the table and the failures by model name.

    `table` returns the table's step, given the failures; `earlier` is as in `run`. As many models run at once as fit on
    the cluster, as trials of Ray Tune if `tuned`. Raises UserError if all models fail, or a step that belongs to no
    model.
    """
    target, failures = table({}), dict[str, str]()
    missing = reasons(to_run([target], store), store, earlier)
    if missing:
        failures = execute_models(models, table, missing, store, watchers, address, tuned)
        target = table(failures)
    (artifact,) = run([target], store, () if missing else watchers, address)
    return artifact, failures
