"""Runs an experiment: a table, the steps behind it, and who asks for it.

run, results, failures = run_table(Reproduction("table3", ...), request, forced=[])
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pipeline.errors import UserError
from pipeline.store.locks import guarded
from pipeline.store.store import Store
from workflows.command_line import CommandLine
from workflows.engine.dag import Imported, Step
from workflows.engine.interface import Model, Watcher
from workflows.engine.plan import to_run
from workflows.engine.runner import run, run_models
from workflows.profiles.changes import BaseProfile
from workflows.profiles.profile import Profile
from workflows.runs import Run, artifacts_of, begun, labelled
from workflows.tables.corpus import CorpusReport
from workflows.tables.measured import Cell
from workflows.tables.table import Results
from workflows.tracking.addresses import default_uri
from workflows.tracking.server import Server
from workflows.tracking.watcher import MlflowWatcher, Workflow

check_shared = Imported("workflows.engine.cluster:check_shared")
cluster = Imported("workflows.engine.cluster:cluster")


@dataclass(frozen=True)
class Request:
    """What a command asks for, and where it shows what happens."""

    profile: BaseProfile
    store: Store
    command: CommandLine
    overrides: str
    """The options that change settings, as typed."""
    address: str | None
    until: str | None
    curves: str
    """The command that shows the curves of this profile's runs in MLflow."""
    say: Callable[[str], None]
    """Prints a line."""
    view: Watcher
    """Shows the running steps."""


@dataclass(frozen=True)
class Reproduction:
    """A table and the steps behind it."""

    name: str
    """The name of the experiment in MLflow, and in EXPERIMENTS, e.g. `table2`."""
    params: Mapping[str, Any]
    """The parameters of the parent run."""
    models: Mapping[str, Cell]
    """The models by name; each has a run of its own in MLflow."""
    reports: Mapping[str, Step[CorpusReport]]
    """The corpus reports, by the names of their texts."""
    tabulate: Callable[[Mapping[str, str]], Step[Any]]
    """Returns the table's step, given the failed models with reasons."""
    tuned: bool = False
    """Whether Ray Tune trains the models, each as a trial."""


def run_steps(
    experiment: Reproduction, request: Request, targets: Sequence[Step[Any]], forced: Sequence[Step[Any]]
) -> None:
    """Runs the missing ones of some steps of an experiment, and what they need; rebuilds those that are `forced`."""
    with _begun(experiment, request, targets, forced) as begun_run:
        earlier = artifacts_of(request.store, experiment.name, request.profile.name)
        run(targets, request.store, [request.view], request.address, earlier)
        begun_run.end(request.store, "stopped", f"--until {request.until}")


def run_table(
    experiment: Reproduction, request: Request, forced: Sequence[Step[Any]]
) -> tuple[Run, Results, Mapping[str, str]]:
    """Runs missing steps, rebuilds those that are `forced`, and reports to MLflow.

    Returns the run, its table, and the reasons of failures by the names of the models that failed.
    """
    store, target = request.store, experiment.tabulate({})
    mlflow = Server(default_uri(store.root), experiment.name, store.root)
    params = {**experiment.params, **({"overrides": request.overrides} if request.overrides else {})}
    workflow = Workflow(target.fingerprint, request.profile.name, params, experiment.models)
    begun_run = _begun(experiment, request, [target], forced, mlflow)
    with begun_run as recorded, MlflowWatcher(mlflow, workflow, store) as runs:
        artifact, failures = run_models(
            {name: Model(model.results, model.recipe.training) for name, model in experiment.models.items()},
            experiment.tabulate,
            store,
            [request.view, runs],
            request.address,
            experiment.tuned,
            artifacts_of(store, experiment.name, request.profile.name),
        )
        table: Results = artifact.load()
        reports = {name: each.published(store) for name, each in experiment.reports.items() if store.find(each.name)}
        runs.finish(artifact, table.metrics, reports, failures)
        recorded.finish(store, artifact, table.metrics, failures)
    return recorded, table, failures


@contextmanager
def _begun(
    experiment: Reproduction,
    request: Request,
    targets: Sequence[Step[Any]],
    forced: Sequence[Step[Any]],
    mlflow: Server | None = None,
) -> Iterator[Run]:
    """Yields the command's run, on a cluster if steps must run; sets aside what `forced` rebuilds.

    Nothing is set aside or recorded before the cluster and `mlflow` have accepted their addresses.
    """
    store, address, target = request.store, request.address, experiment.tabulate({})
    labelled(target)  # raises if two steps share a label
    with guarded(store.root / ".locks"):
        pass  # reports a folder without write access or locks before anything starts
    needed = [*to_run(targets, store, forced)]
    with ExitStack() as during:
        if needed:
            if mlflow:
                mlflow.check_address()
            dashboard = during.enter_context(cluster(address))  # for everything below
            places = [f"{dashboard} (Ray)"] * bool(dashboard) + [request.curves] * bool(mlflow)
            if places:
                request.say(f"monitor: {', '.join(places)}")
        if forced:
            check_shared(store, address)
            request.say(f"rerunning {len(needed)} stages; set aside {_set_aside(needed, store)} artifacts")
        profile = request.profile
        settings = profile.recorded() if isinstance(profile, Profile) else {}
        known: dict[str, Any] = {"command": request.command.typed, "settings": settings}
        yield during.enter_context(begun(store, experiment.name, profile.name, target, works=bool(needed), **known))


def _set_aside(steps: Sequence[Step[Any]], store: Store) -> int:
    """Sets aside the steps' artifacts and returns their number. Raises UserError if one is being built."""
    with ExitStack() as locks:
        for step in steps:
            if owner := locks.enter_context(store.lock(step.name, step.label)).take():
                raise UserError(f"--force: {step.label} is being built by {owner}; wait for it")
        names = [step.name for step in steps if store.find(step.name)]
        for name in names:
            store.set_aside(name)
    return len(names)
