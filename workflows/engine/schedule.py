"""The scheduler: builds steps as Ray tasks once their inputs are built, and as many runs at once as fit.

A model of a table succeeds or fails as a whole; its failure does not stop the others.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import ray
from ray.actor import ActorHandle

from pipeline.errors import LostProcessError, UserError
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from pipeline.training.layout import layout_on
from workflows.engine.dag import Imported, Step, in_order
from workflows.engine.execution import POLL_S, cancel, cancelled_on_error, submit, understood, working
from workflows.engine.interface import Model, Watcher
from workflows.engine.plan import Reason, to_run

RETRIES = 2
"""Retries of a step, or of a trial of Ray Tune, after a lost process or node. No other error is retried."""

Results = Mapping[str, Sequence[Step[Artifact]]]
"""The final steps of models, by name."""

run_trials = Imported("workflows.engine.tuning:run_trials")


def execute(
    missing: Mapping[Step[Artifact], Reason], store: Store, watchers: Sequence[Watcher], address: str | None
) -> None:
    """Builds the steps `missing`, inputs first. If one fails, stops the others and raises its error."""
    with working(missing, store, watchers, address) as relay:
        build(missing, store, relay.board, follow=relay.follow)


def execute_models(
    models: Mapping[str, Model],
    table: Callable[[Mapping[str, str]], Step[Artifact]],
    missing: Mapping[Step[Artifact], Reason],
    store: Store,
    watchers: Sequence[Watcher],
    address: str | None,
    tuned: bool,
) -> dict[str, str]:
    """Builds a table of models, with `missing` steps; returns the failures by model name (`runner.run_models`).

    If several models run at once, those with the most work begin first, so that no long run is left at the end.
    """
    with working(missing, store, watchers, address) as relay:
        at_once = list[int]()
        to_make = {name: to_run(model.results, store) for name, model in models.items()}
        results = relay.results = {name: model.results for name, model in models.items() if to_make[name]}
        for name in results:
            if any(step.stage.trains for step in to_make[name]):
                try:
                    at_once.append(layout_on(ray.nodes(), models[name].training).at_once)
                except UserError as error:
                    relay.failed(name, str(error))
        results = {name: results[name] for name in results if name not in relay.failures}
        if (most := min(at_once, default=1)) > 1:

            def work(name: str) -> int:
                training = models[name].training
                return training.updates * training.model.n_layers * training.model.d_model**2

            results = {name: results[name] for name in sorted(results, key=work, reverse=True)}
        targets = [*chain.from_iterable(results.values()), *table(relay.failures).inputs]
        relay.expect(targets)
        building = partial(build, store=store, board=relay.board, retries=RETRIES)
        own = {step.fingerprint for step in in_order(chain.from_iterable(results.values())) if not tuned}
        steps = [step for step in to_run(targets, store) if not step.is_trained or step.fingerprint in own]
        building(steps, models=results, at_once=most, failed=relay.failed, follow=relay.follow)
        left = {name: results[name] for name in results if name not in relay.failures and to_run(results[name], store)}
        if tuned and left:
            run_trials(left, most, store, relay, building)
        failures = {name: relay.failures[name] for name in models if name in relay.failures}
        if failures and len(failures) == len(models):
            name, why = next(iter(failures.items()))
            raise UserError(f"{name} failed{' like all other models' * (len(models) > 1)}: {why}")
        relay.expect([target := table(failures)])
        building(to_run([target], store), follow=relay.follow)
    return failures


def build(
    steps: Iterable[Step[Artifact]],
    store: Store,
    board: ActorHandle,
    *,
    models: Results | None = None,
    at_once: int = 1,
    failed: Callable[[str, str], object] = lambda name, why: None,
    follow: Callable[[], object] = lambda: None,
    retries: int = RETRIES,
) -> None:
    """Builds `steps`, which come inputs first, training `at_once` runs at a time.

    Training waits for what its models need that can be built without it, so that a broken test set costs none. A step
    that fails fails the models behind it: `failed` gets their names and the reason, and what only they need is stopped.
    Without models, or behind none, it stops all and raises its error. `follow` is called a few times per second.
    """
    steps = [*steps]
    behind = _behind(models, steps) if models else {}
    every = {step.fingerprint for step in steps}
    untrained, alone = {step.fingerprint for step in steps if not step.is_trained}, every.difference(*behind.values())
    waiting, running, lost = [*steps], dict[Any, Step[Artifact]](), Counter[str]()

    def before(step: Step[Artifact]) -> set[str]:
        inputs = {needed.fingerprint for needed in step.inputs}
        of_models = [needed for needed in behind.values() if step.fingerprint in needed] or [every]
        return inputs | set.union(*of_models) & untrained if step.stage.trains else inputs

    with cancelled_on_error(running):
        while waiting or running:
            unbuilt = {step.fingerprint for step in (*waiting, *running.values())}
            training = sum(step.stage.trains for step in running.values())
            for step in [*waiting]:
                if unbuilt.isdisjoint(before(step)) and not (step.stage.trains and models and training >= at_once):
                    training += step.stage.trains
                    waiting.remove(step)
                    running[submit(step, store, board)] = step
            done, _ = ray.wait([*running], timeout=POLL_S)
            follow()
            for reference in done:
                step = running.pop(reference)
                try:
                    ray.get(reference)
                except Exception as error:
                    cause = understood(error)
                    if isinstance(cause, LostProcessError) and lost[step.fingerprint] < retries:
                        lost[step.fingerprint] += 1
                        waiting.insert(0, step)
                        continue
                    names = [name for name, needed in behind.items() if step.fingerprint in needed]
                    if not names:
                        raise
                    cause = getattr(cause, "cause", None) or cause  # of a task
                    for name in names:
                        failed(name, str(cause).strip().split("\n")[-1] or type(cause).__name__)
                        del behind[name]
                    wanted = alone.union(*behind.values())
                    stopped = [reference for reference, step in running.items() if step.fingerprint not in wanted]
                    cancel(stopped)
                    for reference in stopped:
                        running.pop(reference)
                    waiting = [step for step in waiting if step.fingerprint in wanted]


def _behind(models: Results, steps: Sequence[Step[Artifact]]) -> dict[str, set[str]]:
    """Returns the fingerprints of the steps behind each model: its own, and those of the table alone on the same text.

    Those of the table alone are for example the report on a text and the test sets that it compares.
    """
    behind = {name: {step.fingerprint for step in in_order(results)} for name, results in models.items()}
    of_models = set[str]().union(*behind.values())
    of_table = [step for step in steps if not step.is_trained and step.fingerprint not in of_models]
    for needed in behind.values():
        size = 0
        while len(needed) > size:
            size = len(needed)
            for step in of_table:
                if not needed.isdisjoint(each.fingerprint for each in step.inputs):
                    needed.update(each.fingerprint for each in in_order([step]))
    return behind
