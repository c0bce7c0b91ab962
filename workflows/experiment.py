"""Runs an experiment, as every `reproduce_*` does: reads options, prints the plan or runs it, and reports the results.

request = requested("table3", load_profile(profile), config, overrides, store, address, plan)
reproduce(Reproduction("table3", ...), request)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from pipeline.errors import UserError
from pipeline.store.artifact import JsonArtifact
from pipeline.store.locks import guarded
from pipeline.store.store import Store
from workflows.cli.closing import closing_lines
from workflows.cli.console import console
from workflows.cli.prepared import record
from workflows.command_line import CommandLine, command_line
from workflows.engine.dag import Imported, Step
from workflows.engine.progress import View, print_plan
from workflows.engine.runner import Watcher, run
from workflows.names import begin_run, finish_run, named_steps
from workflows.profiles.changes import BaseProfile, changes_typed
from workflows.profiles.profile import Profile
from workflows.reports.corpus import CorpusReport
from workflows.tables.measurements import TrainedModel
from workflows.tables.render import Shown, render_terminal
from workflows.tracking.addresses import default_uri, ui_command
from workflows.tracking.tracker import Tracker
from workflows.tracking.watcher import Workflow, tracked

cluster = Imported("workflows.engine.cluster:cluster")


@dataclass(frozen=True)
class Request:
    """What the options ask for that all experiments share."""

    profile: BaseProfile
    store: Store
    address: str | None
    plan: bool
    gpus: int | None
    gpu: str | None
    overrides: str
    """The options that change settings, as typed."""
    command: CommandLine


def requested(
    name: str,
    profile: BaseProfile,
    config: Path | None,
    overrides: Sequence[str] | None,
    store: str,
    address: str | None,
    plan: bool,
    gpus: int | None = None,
    gpu: str | None = None,
) -> Request:
    """Returns the request of `workflows.reproduce_<name>` with these options. Raises UserError for no such store."""
    if not plan and (gpus is not None or gpu is not None):
        raise UserError("--gpus and --gpu name the hardware that --plan forecasts for; add --plan, or drop them")
    changes = changes_typed(config, overrides)
    command = command_line(f"workflows.reproduce_{name}", changes)
    return Request(profile, Store.at(store).checked(), address, plan, gpus, gpu, changes, command)


def chosen_names(option: str, requested: str | None, available: Iterable[str]) -> list[str]:
    """Returns the comma-separated names given to an option, or all: each once, in the order of those available.

    So another order is the same experiment. Raises UserError for an unknown name.
    """
    known = list(available)
    names = known if requested is None else [name.strip() for name in requested.split(",")]
    for name in names:
        if name not in known:
            raise UserError(f"--{option} {name or repr(name)}: the profile has {', '.join(known)}")
    return [name for name in known if name in names]


@dataclass(frozen=True)
class Reproduction:
    """A table and everything needed to fill it."""

    name: str
    """The name of the experiment in MLflow, e.g. `table2`; the command is `workflows.reproduce_<name>`."""
    params: Mapping[str, Any]
    """The parameters of the parent run."""
    models: Mapping[str, TrainedModel]
    """The models by name; each has a run of its own in MLflow."""
    is_served: bool = field(default=False, kw_only=True)
    """Whether they are kept in MLflow, in a form that it can serve."""
    reports: Mapping[str, Step[CorpusReport]]
    """The reports on the texts, each by the name of its text."""
    tabulate: Callable[[Mapping[str, str]], Step[Any]]
    """Returns the step that makes the table, given the models that failed and the reasons."""
    train: Callable[[Sequence[Watcher]], Mapping[str, str]] | None = None
    """Trains the models, if the table's step does not do so itself, and returns why some failed."""
    report: str = "report.html"
    """The page among the files of the table."""
    forecast: Callable[..., RenderableType | None] | None = None
    """What says with --plan how long the trainings will take, if there are any (`workflows.forecast.estimate`)."""


def reproduce(experiment: Reproduction, request: Request) -> None:
    """Prints the plan if requested; otherwise makes what is missing, reports to MLflow and prints the table."""
    store, target = request.store, experiment.tabulate({})
    named_steps(target)  # raises if two steps share a label
    if request.plan:
        _print_plan(experiment, request, target)
        return
    _print_line(request.profile.in_force(request.overrides))
    with guarded(store.root / ".locks"):
        pass  # a folder that takes no files or locks is reported before anything starts
    tracker = Tracker(default_uri(store.root), experiment.name, store.root)
    place, artifact, table = _run(experiment, request, target, tracker)
    finish_run(store, place, target, artifact)
    console.print()
    console.print(render_terminal(table, console.width))
    console.print()
    commands = {model.command for model in experiment.models.values()}
    model_command = commands.pop() if len(commands) == 1 else ""  # a translator and a parser have none in common
    for line in closing_lines(place, experiment.report, model_command, ui_command(tracker.uri)):
        _print_line(line)


def _print_line(line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True)


def _print_plan(experiment: Reproduction, request: Request, target: Step[Any]) -> None:
    """Prints what is cached and what is to run, with a forecast where something is trained."""
    # First, so that a wrong --gpu is reported before anything is printed.
    hardware, models = (request.gpus, request.gpu), [*experiment.models.values()]
    forecast = experiment.forecast
    shown = forecast and forecast(request.profile, models, *hardware, request.store.root, target)
    _print_line(request.profile.in_force(request.overrides))
    print_plan(console, target, request.store)
    if shown:
        console.print(shown)


def _run(
    experiment: Reproduction, request: Request, target: Step[Any], tracker: Tracker
) -> tuple[Path, JsonArtifact[Any], Shown]:
    """Makes what is missing, with MLflow kept up to date; returns the folder of the run and the table.

    The folder is opened once the cluster and MLflow have accepted their addresses.
    """
    store = request.store
    params = {**experiment.params, **({"overrides": request.overrides} if request.overrides else {})}
    workflow = Workflow(target.fingerprint, request.profile.name, params, experiment.models, experiment.is_served)
    with ExitStack() as during:
        needed = not target.is_made(store) or target.damage(store)
        if needed:
            # One cluster for all that follows, and before MLflow: while that is imported, Ray's processes start.
            dashboard = during.enter_context(cluster(request.address))
            _print_line(f"to watch: {f'{dashboard} (Ray), ' if dashboard else ''}{ui_command(tracker.uri)}")
        runs = during.enter_context(tracked(tracker, workflow, store))
        place = begin_run(store, experiment.name, request.profile.name, target)
        if isinstance(request.profile, Profile):
            record(place, request.profile)
        watchers = [View(console), runs]
        failures = experiment.train(watchers) if experiment.train and needed else {}
        (artifact,) = run([experiment.tabulate(failures)], store, watchers, request.address)
        table: Shown = artifact.load()
        reports = {
            name: report.published(store) for name, report in experiment.reports.items() if store.find(report.name)
        }
        runs.finish(artifact, table.metrics, reports, failures)
    return place, artifact, table
