"""Runs an experiment, as every `reproduce_*` does: reads options, prints the plan or runs it, and reports the results.

@command(app, __doc__, read_options)
def main(request: Request, seeds: int = 1) -> None:
    reproduce(Reproduction("table3", ...), request)
"""

import inspect
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Concatenate, Generic, ParamSpec, TypeVar

import typer
from rich.console import RenderableType

from pipeline.errors import UserError
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
from workflows.engine.cluster import cluster
from workflows.engine.dag import A, Step, to_run
from workflows.engine.events import Watcher
from workflows.engine.grid import Unfinished
from workflows.engine.progress import print_plan, view
from workflows.engine.runner import run
from workflows.forecast.estimate import Planned, forecast
from workflows.forecast.hardware import find, only_with_plan
from workflows.forecast.render import render
from workflows.profiles import Profile, load_profile
from workflows.reports.corpus import CorpusReport
from workflows.tracking.curves import Model, send_corpus_report, tracked
from workflows.tracking.tracker import Tracker, default_uri, ui_command

Own = ParamSpec("Own")
R = TypeVar("R", bound="Request")
FilesOption = Annotated[
    list[Path] | None,
    typer.Option("--files", help="TOML file that names your own text; may be repeated, once per language pair."),
]


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


def read_options(
    profile: ProfileOption = None,
    data: DataOption = None,
    files: FilesOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    store: StoreOption = Path("runs"),
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
    return Request(chosen, LocalStore(store.absolute()), address, plan, gpus, gpu, told, dev_bleu)


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
            function(read(**given), **options)  # type: ignore[call-arg]  # the rest are the function's own

        parameters = [*shared.values(), *own]
        main.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        main.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(help=help_text(docstring))(main)
        return main

    return decorate


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
    """Returns figures of the table for the workflow's run in MLflow, if it has any of its own."""


def reproduce(experiment: Reproduction[A], request: Request) -> None:
    """Prints the plan if requested; otherwise makes what is missing, reports to MLflow and prints the table."""
    store, target = request.store, experiment.tabulate({})
    if request.plan:
        print_plan(console, target, store)
        if experiment.planned:
            hardware = find(request.gpus, request.gpu, experiment.planned[0].training.device)
            console.print(render(forecast(request.profile, experiment.planned, hardware, store.root)))
        return
    tracker = Tracker(default_uri(store.root), experiment.name, store.root)
    title = f"{experiment.name} {request.profile.name}"
    command = f"workflows.reproduce_{experiment.name}"
    given = {"overrides": request.overrides} if request.overrides else {}
    models = [replace(model, params={**model.params, **given}) for model in experiment.models]
    with tracked(tracker, target, title, command, {**experiment.params, **given}, models, store) as curves:
        watchers = [view(console), curves]
        # Trainings and table run separately; one cluster serves both, if anything is to run at all.
        with cluster(request.address) if experiment.train and to_run([target], store) else nullcontext():
            unfinished = experiment.train(watchers) if experiment.train else {}
            target = experiment.tabulate(unfinished)
            (table,) = run([target], store, watchers, request.address)
        for model in models:
            curves.close(model, unfinished[model.name].state if model.name in unfinished else "measured")
        for name, report in experiment.reports.items():
            send_corpus_report(tracker, report.published(store), report.fingerprint, name)
        if experiment.figures:
            tracker.results("", experiment.figures(table))
        tracker.artifacts(table.folder, target.fingerprint)
    console.print()
    console.print(experiment.show(table, console.width))
    console.print(f"\nreport: {table.folder / 'report.html'}", highlight=False, soft_wrap=True)
    console.print(f"curves: {ui_command(tracker.uri)}", highlight=False, soft_wrap=True)
