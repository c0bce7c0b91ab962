"""Trains and measures a table's models, as many at once as fit on the cluster. A failure does not stop the others.

Steps that depend on no training run, such as prepared text, run once each, before the models that they concern.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import ray
from ray.actor import ActorHandle

from pipeline.errors import LostProcessError, UserError
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from pipeline.training.layout import layout_on
from workflows.engine.cluster import ON_HEAD
from workflows.engine.dag import Imported, Step, in_order
from workflows.engine.events import Relay
from workflows.engine.execution import POLL_S, cancel, cancelled_on_error, make, submit, understood, working
from workflows.engine.plan import Reason, to_run
from workflows.engine.runner import Model, Watcher

RETRIES = 2
"""Retries of a model after a lost process or node. No other error is retried."""

Results = Mapping[str, Sequence[Step[Artifact]]]
Shared = Mapping[str, Any]
"""The final steps of models by name, and references to submitted steps by fingerprint."""

run_trials = Imported("workflows.engine.tuning:run_trials")


def execute_models(
    models: Mapping[str, Model],
    table: Callable[[Mapping[str, str]], Step[Artifact]],
    missing: Mapping[Step[Artifact], Reason],
    store: Store,
    watchers: Sequence[Watcher],
    address: str | None,
    tuned: bool,
) -> dict[str, str]:
    """Builds a table of models, with `missing` steps; returns the failures by model name (see `run_models`).

    If several models run at once, those with the most work begin first, so that no long run is left at the end.
    """
    with working(missing, store, watchers, address) as relay:
        at_once = list[int]()
        to_make = {name: to_run(model.results, store) for name, model in models.items()}
        results = {name: model.results for name, model in models.items() if to_make[name]}
        relay.results = results
        trainings = {
            name: {step.fingerprint for step in missing if step.stage.resumes} for name, missing in to_make.items()
        }
        for name in [*results]:
            if trainings[name]:
                try:
                    at_once.append(layout_on(ray.nodes(), models[name].training).at_once)
                except UserError as error:
                    relay.failed(name, str(error))
        results = {name: results[name] for name in results if name not in relay.failures}
        if min(at_once, default=1) > 1:

            def work(name: str) -> int:
                training = models[name].training
                return training.updates * training.model.n_layers * training.model.d_model**2

            results = {name: results[name] for name in sorted(results, key=work, reverse=True)}
        targets = [*chain.from_iterable(results.values()), *table(relay.failures).inputs]
        relay.expect(targets)
        shared = submit([step for step in to_run(targets, store) if not step.is_trained], store, relay.board)
        with cancelled_on_error(shared):
            if results:
                run = run_trials if tuned else partial(_run_all, trainings)
                run(results, min(at_once, default=1), store, relay, _before(results, shared))
                relay.fetch()
            failures = {name: relay.failures[name] for name in models if name in relay.failures}
            needed = {step.fingerprint for step in in_order([table(failures)])}
            cancel([reference for reference, step in shared.items() if step.fingerprint not in needed])
        if failures and len(failures) == len(models):
            name, why = next(iter(failures.items()))
            raise UserError(f"{name} failed{' like all other models' * (len(models) > 1)}: {why}")
        make([*to_run([table(failures)], store)], store, relay)
    return failures


def _before(results: Results, shared: Mapping[Any, Step[Artifact]]) -> dict[str, Shared]:
    """Returns what must be built before each model is trained: its own steps, and the table's on the same text.

    Those of the table alone are for example the report on a text and the test sets that it compares.
    """
    behind = {name: {*in_order(final)} for name, final in results.items()}
    of_table = {*shared.values()}.difference(*behind.values())
    for steps in behind.values():
        size = 0
        while len(steps) > size:
            size = len(steps)
            steps.update(*[in_order([step]) for step in of_table if not steps.isdisjoint(step.inputs)])
    return {
        name: {step.fingerprint: reference for reference, step in shared.items() if step in steps}
        for name, steps in behind.items()
    }


def _run_all(
    trainings: Mapping[str, set[str]],
    results: Results,
    at_once: int,
    store: Store,
    relay: Relay,
    shared: Mapping[str, Shared],
) -> None:
    """Builds the models in order, training at most `at_once`. `relay.failures` has those that failed."""
    task: Any = ray.remote(run_model)
    retried = {"max_retries": RETRIES, "retry_exceptions": [LostProcessError]}
    waiting, running = [*results], dict[Any, str]()
    with cancelled_on_error(running):
        while waiting or running:
            for name in [*waiting]:
                active = set[str]().union(*(trainings[other] & relay.unfinished for other in running.values()))
                # A model that shares a run with an active one would wait, in a third model's place.
                if len(active) < at_once and active.isdisjoint(trainings[name]):
                    waiting.remove(name)
                    begun = task.options(num_cpus=0, resources=ON_HEAD, **retried)
                    running[begun.remote(name, results[name], store, relay.board, shared[name])] = name
            done, _ = ray.wait([*running], timeout=POLL_S)
            relay.fetch()
            for reference in done:
                name = running.pop(reference)
                try:
                    ray.get(reference)
                except Exception as error:
                    relay.failed(name, reason(understood(error)))
            relay.idle()


def run_model(name: str, results: Sequence[Step[Artifact]], store: Store, board: ActorHandle, shared: Shared) -> None:
    """Runs a model's missing steps from a process of its own, after those `shared`; posts why it has failed.

    Raises LostProcessError, for Ray or Ray Tune to try again.
    """
    try:
        before = {fingerprint: reference for fingerprint, reference in shared.items() if not _is_lost(reference)}
        waiting = [*before.values()]
        while waiting:  # before anything is submitted: Ray aborts if a task is cancelled as soon as that
            done, waiting = ray.wait(waiting)
            ray.get(done)
        running = submit([*to_run(results, store)], store, board, before)
        with cancelled_on_error(running):
            ray.get([*running])
    except Exception as error:
        if isinstance(cause := understood(error), LostProcessError):
            raise cause from None
        ray.get(board.post.remote(name, {"failed": reason(cause)}))


def _is_lost(reference: Any) -> bool:
    """Whether a task has failed since Ray lost its process, so that a retry helps."""
    done, _ = ray.wait([reference], timeout=0)
    try:
        ray.get(done)
    except Exception as error:
        return isinstance(understood(error), LostProcessError)
    return False


def reason(error: BaseException) -> str:
    """Returns an error as one line."""
    error = getattr(error, "cause", None) or error  # of a task
    return str(error).strip().split("\n")[-1] or type(error).__name__
