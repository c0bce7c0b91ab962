"""Trains and measures a table's models, as many at once as fit on the cluster. A failure does not stop the others.

Steps that depend on no training run, such as prepared text, run beside the models, once each.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import ray
from ray.actor import ActorHandle

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from pipeline.training.on_ray import layout_of
from workflows.engine.dag import Imported, Step, in_order, to_run
from workflows.engine.events import Relay
from workflows.engine.execution import (
    POLL_S,
    LostProcessError,
    cancel,
    cancelled_on_error,
    make,
    submit,
    understood,
    working,
)
from workflows.engine.reasons import Reason
from workflows.engine.runner import Model, Watcher

RETRIES = 2
"""Retries of a model after a lost process or node. No other error is retried."""

Results = Mapping[str, Sequence[Step[Artifact]]]
"""The final steps of models, by name."""

run_trials = Imported("workflows.engine.tuning:run_trials")


def execute_models(
    models: Mapping[str, Model],
    table: Callable[[Mapping[str, str]], Step[Artifact]],
    missing: Mapping[Step[Artifact], Reason],
    store: Store,
    watchers: Sequence[Watcher],
    address: str | None,
    first: Sequence[Step[Artifact]],
    beside: Sequence[Step[Artifact]],
    tuned: bool,
) -> dict[str, str]:
    """Builds a table of models, with `missing` steps; returns the failures by model name (see `run_models`).

    If several models run at once, those with the most work begin first, so that no long run is left at the end.
    """
    with working(missing, watchers, address) as relay:
        make([*to_run(first, store)], store, relay)
        failures, at_once = dict[str, str](), list[int]()
        to_make = {name: to_run(model.results, store) for name, model in models.items()}
        results = {name: model.results for name, model in models.items() if to_make[name]}
        for name in [*results]:
            if any(step.stage.resumes for step in to_make[name]):
                try:
                    at_once.append(layout_of(models[name].training).at_once)
                except UserError as error:
                    failures[name] = str(error)
                    relay.failed(name, results.pop(name), str(error))
        if min(at_once, default=1) > 1:
            results = {name: results[name] for name in sorted(results, key=lambda name: -_work(models[name]))}
        shared = _submit_shared([*chain.from_iterable(results.values()), *(beside if results else ())], store, relay)
        with cancelled_on_error(shared):
            if results:
                before = {step.fingerprint: reference for reference, step in shared.items()}
                run = run_trials if tuned else _run_all
                failures |= run(results, min(at_once, default=1), store, relay, before)
                relay.fetch()
            needed = {step.fingerprint for step in in_order([table(failures)])}
            cancel([reference for reference, step in shared.items() if step.fingerprint not in needed])
        if failures and len(failures) == len(models):
            name, why = next(iter(failures.items()))
            raise UserError(f"nothing was trained; {name} failed: {why}")
        make([*to_run([table(failures)], store)], store, relay)
    return {name: failures[name] for name in models if name in failures}


def _work(model: Model) -> int:
    """Returns a number that grows with a run's FLOP, without importing torch."""
    sizes = model.training.model
    return model.training.updates * sizes.n_layers * sizes.d_model * (sizes.d_model + sizes.d_ff)


def _submit_shared(targets: Sequence[Step[Artifact]], store: Store, relay: Relay) -> dict[Any, Step[Artifact]]:
    """Submits the missing steps behind `targets` that depend on no training run; returns them by reference."""
    steps = [*to_run(targets, store)]
    relay.expect(steps)
    return submit([step for step in steps if not step.is_trained], store, relay.board)


def _run_all(results: Results, at_once: int, store: Store, relay: Relay, before: Mapping[str, Any]) -> dict[str, str]:
    """Builds the models in order, training at most `at_once`; returns the failures by model name."""
    waiting, tries, failures = [*results], Counter[str](), dict[str, str]()
    running: dict[str, dict[Any, Step[Artifact]]] = {}
    submitted: list[Any] = []
    with cancelled_on_error(submitted):
        while waiting or running:
            while name := _next(waiting, at_once, running, results):
                waiting.remove(name)
                running[name] = submit_model(results[name], store, relay.board, before)
                submitted += running[name]
            references = [*dict.fromkeys(chain.from_iterable(running.values()))]
            done = ray.wait(references, num_returns=len(references), timeout=POLL_S)[0] if references else []
            relay.fetch()
            for name, steps in [*running.items()]:
                try:
                    for reference in [reference for reference in steps if reference in done]:  # inputs first
                        relay.finished(steps.pop(reference), ray.get(reference))
                except Exception as error:
                    cause = understood(error)
                    cancel([reference for reference in steps if reference not in before.values()])
                    steps.clear()
                    tries[name] += 1
                    if tries[name] <= RETRIES and isinstance(cause, LostProcessError):
                        waiting.insert(0, name)
                    else:
                        failures[name] = reason(cause)
                        relay.failed(name, results[name], failures[name])
                if not steps:
                    del running[name]
            relay.idle()
    return failures


def _next(
    waiting: Sequence[str], at_once: int, running: Mapping[str, Mapping[Any, Step[Artifact]]], results: Results
) -> str | None:
    """Returns the next model to begin, or None without room for its run.

    Skips a model that shares a run with an active one: it would wait, in a third model's place.
    """
    training = {step.fingerprint for steps in running.values() for step in steps.values() if step.stage.resumes}
    if len(training) >= at_once:
        return None
    behind = ((name, (step.fingerprint for step in in_order(results[name]))) for name in waiting)
    return next((name for name, fingerprints in behind if training.isdisjoint(fingerprints)), None)


def submit_model(
    results: Sequence[Step[Artifact]], store: Store, board: ActorHandle, before: Mapping[str, Any]
) -> dict[Any, Step[Artifact]]:
    """Submits a model's missing steps; returns them by reference, with its final steps in `before`."""
    before = {fingerprint: reference for fingerprint, reference in before.items() if not _is_lost(reference)}
    ours = {before[step.fingerprint]: step for step in results if step.fingerprint in before}
    return ours | submit([*to_run(results, store)], store, board, before)


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
