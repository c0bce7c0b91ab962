"""Makes the artifacts of a DAG that are missing, and keeps watchers informed. Ray is loaded if there are any.

    (table,) = run([table_step], store, watchers)
    unfinished = run_grid(trials, store, layout=profile.grid.training)

A grid's results go to the store as usual: trials share the prepared data, and a trial that failed or was interrupted
continues from its newest checkpoint, in this command or the next.
"""

import logging
from collections.abc import Callable, Sequence

from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from workflows.engine.dag import A, Imported, Step, to_run
from workflows.engine.events import Watcher
from workflows.engine.grid import Asha, Trial, Unfinished, stopped_record

execute = Imported("workflows.engine.execution:execute")
tune_trials = Imported("workflows.engine.tuning:tune_trials")
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
        execute(missing, store, watchers, address)
    else:
        for watcher in watchers:
            watcher.begin([], [*targets])
            watcher.end(None)
    return [step.published(store) for step in targets]


def run_grid(
    trials: Sequence[Trial],
    store: Store,
    watchers: Sequence[Watcher] = (),
    address: str | None = None,
    *,
    inputs: Sequence[Step[Artifact]] = (),
    layout: TrainingSettings,
    scheduler: Asha | None = None,
    work_of: Callable[[Trial], float] | None = None,
) -> dict[str, Unfinished]:
    """Makes `inputs`, which the trainings share, then runs `trials`; returns those that have no results, by name.

    They start in their order, or those with the most work (`work_of`, in any unit) first, so that no long training is
    still running after all others are done. As many run at once as the cluster has room for, given the training workers
    in `layout`. A trial stopped by the scheduler stays stopped in later calls with a scheduler, and continues in calls
    without one. Raises UserError if none has results.
    """
    if inputs:
        run(inputs, store, watchers, address)
    remembered = {trial.name: _stopped_before(store, trial) for trial in trials} if scheduler else {}
    unfinished = {name: stopped for name, stopped in remembered.items() if stopped}
    wanted = [trial for trial in trials if trial.name not in unfinished]
    missing = missing_steps([step for trial in wanted for step in trial.results], store)
    if missing:
        to_make = {step.fingerprint for step in missing}
        open_trials = [trial for trial in wanted if any(step.fingerprint in to_make for step in trial.results)]
        if work_of:
            open_trials.sort(key=work_of, reverse=True)
        unfinished |= tune_trials(open_trials, missing, store, watchers, address, layout, scheduler)
    if len(unfinished) == len(trials):
        first = unfinished[trials[0].name]
        raise UserError(f"nothing was trained; {trials[0].name} {first.state}: {first.reason}")
    return unfinished


def _stopped_before(store: Store, trial: Trial) -> Unfinished | None:
    """Returns the reason recorded when a scheduler stopped a trial; None if there is none or it is unreadable."""
    try:
        return Unfinished(**store.read_record(stopped_record(trial)))
    except TypeError:
        return None


def missing_steps(targets: Sequence[Step[Artifact]], store: Store) -> list[Step[Artifact]]:
    """Returns the steps that must run (`to_run`), and logs a warning for each damaged folder."""
    damage_by_fingerprint: dict[str, str | None] = {}
    missing = to_run(targets, store, damage_by_fingerprint)
    for step in missing:
        if damage := damage_by_fingerprint.get(step.fingerprint):
            logger.warning("%s is damaged (%s): running %s again", store.find(step.name), damage, step.label)
    return missing
