"""Runs an experiment, as every `reproduce_*` does: reads options, prints the plan or runs it, and reports the results.

@command(app, __doc__, read_options)
def main(request: Request, seeds: int = 1) -> None:
    reproduce(Reproduction("table3", ...), request)
"""

import inspect
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Concatenate, Generic, ParamSpec, TypeVar, get_args

import typer
from rich.console import RenderableType

from pipeline.errors import UserError
from pipeline.store.object_store import store_at
from pipeline.store.store import LocalStore
from workflows.console.command import console, help_text
from workflows.console.options import (
    AddressOption,
    ConfigOption,
    DataOption,
    DevBleuOption,
    GpuOption,
    GpusOption,
    PlanOption,
    ProfileOption,
    SetOption,
    StoreOption,
)
from workflows.engine.dag import A, Step
from workflows.engine.events import Watcher
from workflows.engine.grid import Unfinished
from workflows.engine.interrupts import sigterm_as_interrupt
from workflows.engine.progress import print_plan, view
from workflows.engine.runner import run
from workflows.forecast.planned import Planned, only_with_plan
from workflows.history.commands import UNKNOWN, Invocation
from workflows.profiles import Profile, load_profile
from workflows.reports.corpus import CorpusReport
from workflows.runs.closing import closing_lines
from workflows.runs.names import begin_run, finish_run
from workflows.tracking.addresses import default_uri, ui_command
from workflows.tracking.tracker import Tracker
from workflows.tracking.watcher import Model, Workflow, tracked

Own = ParamSpec("Own")
R = TypeVar("R", bound="Request")
FilesOption = Annotated[
    list[Path] | None,
    typer.Option("--files", help="TOML file that names your own text; may be repeated, once per language pair."),
]

NOT_IN_RESULTS = ("store", "address", "plan", "gpus", "gpu")
"""The options that say where and how a workflow is run, not what it makes."""
PREPARING = ("profile", "data", "files", "config", "overrides")
"""The options that `aiayn prepare` has, too."""


@dataclass(frozen=True)
class Request:
    """The values of the options that all experiments share."""

    profile: Profile
    store: LocalStore
    address: str | None
    plan: bool
    gpus: int | None
    gpu: str | None
    overrides: str
    """The options that change settings, as given."""
    dev_scores: bool = False
    """Says whether every kept checkpoint is scored on the dev set."""
    invocation: Invocation = UNKNOWN
    """The command as the report shows it."""


def read_options(
    profile: ProfileOption = None,
    data: DataOption = None,
    files: FilesOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    store: StoreOption = "runs",
    address: AddressOption = None,
    plan: PlanOption = False,
    gpus: GpusOption = None,
    gpu: GpuOption = None,
    dev_bleu: DevBleuOption = False,
) -> Request:
    """Makes a request from the shared options. Raises UserError if they are invalid or contradict each other."""
    only_with_plan(plan, gpus, gpu)
    chosen = load_profile(profile, data=data, files=files or [], config=config, overrides=overrides or [])
    told = told_overrides(config, overrides or [])
    return Request(chosen, store_at(store), address, plan, gpus, gpu, told, dev_bleu)


def told_overrides(config: Path | None, overrides: Sequence[str]) -> str:
    """Returns the options that change settings as they were given."""
    given = ["--config", str(config)] if config else []
    for override in overrides:
        given += ["--set", override]
    return shlex.join(given)


def command(
    app: typer.Typer, docstring: str | None, read: Callable[..., R]
) -> Callable[[Callable[Concatenate[R, Own], None]], Callable[..., None]]:
    """Decorates a command's function, replacing its first parameter by the options that `read` makes it of."""

    def decorate(function: Callable[Concatenate[R, Own], None]) -> Callable[..., None]:
        shared = inspect.signature(read).parameters
        own = list(inspect.signature(function).parameters.values())[1:]

        def main(**options: Any) -> None:
            given = {name: options.pop(name) for name in shared if name in options}
            called = _invocation(_module_of(function), parameters, {**given, **options})
            request = replace(read(**given), invocation=called)
            function(request, **options)  # type: ignore[call-arg]  # the rest are the function's own

        parameters = [*shared.values(), *own]
        main.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        main.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(help=help_text(docstring))(main)
        return main

    return decorate


def _module_of(function: Callable[..., Any]) -> str:
    """Returns the name by which `python -m` runs the module of a command."""
    module = sys.modules[function.__module__]
    return module.__spec__.name if module.__spec__ else module.__name__


def _invocation(module: str, parameters: Sequence[inspect.Parameter], values: Mapping[str, Any]) -> Invocation:
    """Writes the options that decide the results, where they are not the usual ones, as one would type them."""
    words: list[str] = []
    shared: list[str] = []
    for parameter in parameters:
        value = values.get(parameter.name, parameter.default)
        if parameter.name in NOT_IN_RESULTS or value == parameter.default or value is None or value == []:
            continue
        option = _option(parameter)
        typed = [word for one in (value if isinstance(value, list) else [value]) for word in (option, str(one))]
        typed = [option] if value is True else typed
        words += typed
        shared += typed if parameter.name in PREPARING else []
    given = str(values.get("store", "runs"))
    store = Path(given)
    shown = store.relative_to(Path.cwd()) if store.is_absolute() and store.is_relative_to(Path.cwd()) else store
    command = shlex.join(["python", "-m", module, *words])
    return Invocation(command=command, shared=shlex.join(shared), store=given if "://" in given else str(shown))


def _option(parameter: inspect.Parameter) -> str:
    """Returns the name of a parameter's option on the command line."""
    declared = [name for one in get_args(parameter.annotation)[1:] for name in getattr(one, "param_decls", None) or ()]
    return next(iter(declared), "--" + parameter.name.replace("_", "-"))


def chosen_names(option: str, requested: str | None, available: Iterable[str]) -> list[str]:
    """Returns the comma-separated names given to an option, or all. Raises UserError for an unknown name."""
    known = list(available)
    names = [name.strip() for name in requested.split(",")] if requested else known
    for name in names:
        if name not in known:
            raise UserError(f"--{option} {name}: the profile has {', '.join(known)}")
    return names


@dataclass(frozen=True)
class Reproduction(Generic[A]):
    """A table and everything needed to fill it."""

    name: str
    """The name of the experiment in MLflow, e.g. `table2`; the command is `workflows.reproduce_<name>`."""
    params: Mapping[str, Any]
    """The parameters of the parent run."""
    models: Sequence[Model]
    planned: Sequence[Planned]
    """The trainings, for the forecast; without any, there is none."""
    reports: Mapping[str, Step[CorpusReport]]
    """The reports on the texts, each by the name of its text."""
    tabulate: Callable[[Mapping[str, Unfinished]], Step[A]]
    """Returns the step that makes the table, given the models that have no results and the reasons."""
    show: Callable[[A, int], RenderableType]
    """Renders the table for a terminal with the given number of columns."""
    train: Callable[[Sequence[Watcher]], Mapping[str, Unfinished]] | None = None
    """Trains the models, if the table's step does not do so itself, and returns those that have no results."""
    figures: Callable[[A], Mapping[str, float]] | None = None
    """Returns the main figures of the table, for the workflow's run in MLflow."""


def reproduce(experiment: Reproduction[A], request: Request) -> None:
    """Prints the plan if requested; otherwise makes what is missing, reports to MLflow and prints the table."""
    store, target = request.store, experiment.tabulate({})
    if request.plan:
        _print_plan(experiment, request, target)
        return
    console.print(_in_force(experiment, request), highlight=False, soft_wrap=True, markup=False)
    place = begin_run(store, experiment.name, request.profile.name, target)
    tracker = Tracker(default_uri(store.root), experiment.name, store.root)
    with sigterm_as_interrupt():
        table = _made(experiment, request, tracker)
    finish_run(store, place, target, table)
    console.print()
    console.print(experiment.show(table, console.width))
    console.print()
    model_command = experiment.models[0].evaluation.command if experiment.models else ""
    for line in closing_lines(place, model_command, ui_command(tracker.uri)):
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def _print_plan(experiment: Reproduction[A], request: Request, target: Step[A]) -> None:
    """Prints what is cached and what is to run, with a forecast where something is trained."""
    from workflows.forecast.estimate import forecast  # torch is slow to import, and running does not need a forecast
    from workflows.forecast.hardware import find
    from workflows.forecast.render import render

    # First, so that a wrong --gpu is told before anything is printed.
    hardware = experiment.planned and find(request.gpus, request.gpu, experiment.planned[0].training.device)
    console.print(_in_force(experiment, request), highlight=False, soft_wrap=True, markup=False)
    print_plan(console, target, request.store)
    if hardware:
        console.print(render(forecast(request.profile, experiment.planned, hardware, request.store.root)))


def _made(experiment: Reproduction[A], request: Request, tracker: Tracker) -> A:
    """Makes what is missing and returns the table, with MLflow kept up to date."""
    store, target = request.store, experiment.tabulate({})
    with ExitStack() as during:
        if not target.is_made(store) or target.damage(store):
            from workflows.engine.cluster import cluster

            # One for all that follows, and before MLflow: while that is imported, Ray's processes start.
            dashboard = during.enter_context(cluster(request.address))
            watching = f"to watch: {f'{dashboard} (Ray), ' if dashboard else ''}{ui_command(tracker.uri)}"
            console.print(watching, highlight=False, soft_wrap=True, markup=False)
        runs = during.enter_context(tracked(tracker, _workflow(experiment, request, target), store))
        watchers = [view(console), runs]
        unfinished = experiment.train(watchers) if experiment.train else {}
        (table,) = run([experiment.tabulate(unfinished)], store, watchers, request.address)
        figures = experiment.figures(table) if experiment.figures else {}
        reports = {name: report.published(store) for name, report in experiment.reports.items()}
        runs.finish(table, figures, reports, {name: why.state for name, why in unfinished.items()})
    return table


def _workflow(experiment: Reproduction[A], request: Request, target: Step[A]) -> Workflow:
    """Describes the run in MLflow before it begins."""
    # Called as a function, it has no command line; then the command that does the same is named as far as it is known.
    typed = shlex.join(sys.argv[1:]) if experiment.name in Path(sys.argv[0]).name else request.overrides
    module, overrides = _module(experiment), {"overrides": request.overrides} if request.overrides else {}
    return Workflow(
        target.fingerprint,
        title=f"{experiment.name} {request.profile.name}",
        command=f"python -m {module} {typed}".strip(),
        module=module,
        params={**experiment.params, **overrides},
        models=[replace(model, params={**model.params, **overrides}) for model in experiment.models],
    )


def _in_force(experiment: Reproduction[A], request: Request) -> str:
    """Says whose settings are in force. An experiment without text has a profile of another kind."""
    if not isinstance(request.profile, Profile):
        return f"settings of profile {request.profile.name}"
    return request.profile.in_force({planned.name: planned.training for planned in experiment.planned})


def _module(experiment: Reproduction[A]) -> str:
    return f"workflows.reproduce_{experiment.name}"
