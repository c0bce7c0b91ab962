"""Trains the models of a grid and measures them, as trials of Ray Tune.

    failures = run_grid({"base": [perplexity, scores]}, store, layout=profile.grid.training)

Their results go to the store as usual: the trainings share the prepared data, and one that failed or was interrupted
continues from its newest checkpoint, in this command or the next.
"""

from collections.abc import Mapping, Sequence

from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from workflows.engine.dag import Imported, Step, to_run
from workflows.engine.runner import Watcher, run

tune_models = Imported("workflows.engine.tuning:tune_models")


def run_grid(
    models: Mapping[str, Sequence[Step[Artifact]]],
    store: Store,
    watchers: Sequence[Watcher] = (),
    address: str | None = None,
    *,
    inputs: Sequence[Step[Artifact]] = (),
    layout: TrainingSettings,
) -> dict[str, str]:
    """Makes `inputs`, which the trainings share, then the results of `models`; returns why some failed, by name.

    They start in their order, as many at once as the cluster has room for, given the training workers in `layout`.
    Raises UserError if all fail.
    """
    if inputs:
        run(inputs, store, watchers, address)
    missing = [*to_run([step for results in models.values() for step in results], store)]
    if not missing:
        return {}
    to_make = {step.fingerprint for step in missing}
    unfinished = {
        name: results for name, results in models.items() if any(step.fingerprint in to_make for step in results)
    }
    failures: dict[str, str] = tune_models(unfinished, missing, store, watchers, address, layout)
    if len(failures) == len(models):
        name = next(iter(models))
        raise UserError(f"nothing was trained; {name} failed: {failures[name]}")
    return failures
