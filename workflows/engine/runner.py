"""Builds the missing artifacts of a DAG and notifies watchers. Imports Ray only if there are any.

    (table,) = run([table_step], store, watchers)
    table, failures = run_models({"base": Model([perplexity, scores], settings)}, table_of, store, watchers)

Models share the prepared data in the store. A failed or interrupted run resumes from its newest checkpoint, in this
command or the next.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from pipeline.store.store import Store
from workflows.engine.dag import A, Imported, Step
from workflows.engine.interface import Model, Watcher
from workflows.engine.plan import reasons, to_run

execute = Imported("workflows.engine.schedule:execute")
execute_models = Imported("workflows.engine.schedule:execute_models")


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
