"""Runs an experiment for its command: reads options, prints the plan or runs it, reports the results.

request = requested("table3", text.load(common), common, hardware)
reproduce(Reproduction("table3", ...), request)
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import typer

from pipeline.errors import UserError
from pipeline.store.locks import guarded
from pipeline.store.store import Store
from workflows.cli.closing import closing_lines, shown
from workflows.cli.console import console, print_error
from workflows.cli.options import Common
from workflows.cli.prepared import record
from workflows.command_line import CommandLine, command_line
from workflows.engine.dag import Imported, Step
from workflows.engine.interface import Model
from workflows.engine.plan import as_mermaid, planned, print_plan, reasons, steps_of, to_run
from workflows.engine.progress import View
from workflows.engine.runner import run, run_models
from workflows.profiles.changes import BaseProfile, changes_typed
from workflows.profiles.profile import Profile
from workflows.runs import Run, artifacts_of, begun, labelled
from workflows.tables.corpus import CorpusReport
from workflows.tables.measured import Cell
from workflows.tables.render import render_terminal
from workflows.tables.table import Results
from workflows.tracking.addresses import default_uri, ui_command
from workflows.tracking.export import Workflow
from workflows.tracking.server import Server
from workflows.tracking.watcher import tracked

check_shared = Imported("workflows.engine.cluster:check_shared")
cluster = Imported("workflows.engine.cluster:cluster")
forecast = Imported("workflows.forecast:forecast")


@dataclass(frozen=True)
class Request:
    """The values of the options that all experiments share."""

    profile: BaseProfile
    store: Store
    command: CommandLine
    overrides: str = ""
    """The options that change settings, as typed."""
    options: Common = field(default_factory=Common)


def requested(name: str, profile: BaseProfile, options: Common) -> Request:
    """Returns the request of the experiment `name` with these options.

    Raises UserError for an unusable store, and for options without effect.
    """
    if (options.gpus or options.gpu) and (options.until or options.mermaid or not options.plan):
        change = "add --plan" if not options.plan else f"drop {'--until' if options.until else '--mermaid'}"
        raise UserError(f"--gpus and --gpu only affect the forecast of --plan, all of it; {change} or drop them")
    forms = [form for form in ("verbose", "json", "mermaid") if getattr(options, form)]
    if forms and not options.plan:
        raise UserError(f"--{forms[0]} only affects --plan; add --plan or drop it")
    if len(forms) > 1:
        raise UserError(f"--{forms[0]} and --{forms[1]} each print the plan in a form of their own; drop one")
    changes = changes_typed(options.config, options.overrides)
    store = Store.at(options.store).checked()
    return Request(profile, store, command_line(name, changes), changes, options)


def chosen_names(
    option: str, requested: str | None, available: Iterable[str], default: Sequence[str] | None = None
) -> list[str]:
    """Returns the comma-separated names given to an option, or the `default`, by default all.

    Returns each name once, in the order of `available`, so that another order is the same experiment. Raises UserError
    for an unknown name.
    """
    known = list(available)
    usual = known if default is None else default
    names = usual if requested is None else [name.strip() for name in requested.split(",")]
    for name in names:
        if name not in known:
            raise UserError(f"--{option} {name or repr(name)}: the profile has {', '.join(known)}")
    return [name for name in known if name in names]


@dataclass(frozen=True)
class Reproduction:
    """A table and the steps behind it."""

    name: str
    """The name of the experiment in MLflow, and in EXPERIMENTS, e.g. `table2`."""
    params: Mapping[str, Any]
    """The parameters of the parent run."""
    models: Mapping[str, Cell]
    """The models by name; each has a run of its own in MLflow."""
    is_served: bool = field(default=False, kw_only=True)
    """Whether the models are logged to MLflow in a form that it can serve."""
    reports: Mapping[str, Step[CorpusReport]]
    """The corpus reports, by the names of their texts."""
    tabulate: Callable[[Mapping[str, str]], Step[Any]]
    """Returns the table's step, given the failed models with reasons."""
    tuned: bool = False
    """Whether Ray Tune trains the models, each as a trial."""


def reproduce(experiment: Reproduction, request: Request) -> None:
    """Prints the plan if requested; otherwise runs missing steps, reports to MLflow and prints the table.

    Raises typer.Exit with status 1 at the end if models failed.
    """
    store, options, target = request.store, request.options, experiment.tabulate({})
    labelled(target)  # raises if two steps share a label
    targets = steps_of([target], options.until, "until") if options.until else [target]
    forced = steps_of(targets, options.force, "force") if options.force else []
    if options.plan:
        _print_plan(experiment, request, targets, forced)
        return
    _print_line(request.profile.in_force(request.overrides))
    with guarded(store.root / ".locks"):
        pass  # reports a folder without write access or locks before anything starts
    if options.until:
        with _begun(experiment, request, targets, forced) as begun_run:
            earlier = artifacts_of(store, experiment.name, request.profile.name)
            run(targets, store, [View(console)], options.address, earlier)
            begun_run.end(store, "stopped", f"--until {options.until}")
        for step in targets:
            _print_line(f"{step.label}: {shown(store.folder(step.name))}")
        return
    mlflow = Server(default_uri(store.root), experiment.name, store.root)
    with _begun(experiment, request, targets, forced, mlflow) as begun_run:
        table, failures = _run(experiment, request, begun_run, mlflow)
    console.print()
    console.print(render_terminal(table, console.width))
    console.print()
    commands = {"parse" if model.parses else "translate" for model in experiment.models.values()}
    model_command = commands.pop() if len(commands) == 1 else ""  # translators and parsers share none
    for line in closing_lines(begun_run.folder, model_command, ui_command(mlflow.uri)):
        _print_line(line)
    if table.said:
        _print_line(f"\n{table.said}")
    if failures:
        for name, why in failures.items():
            print_error(f"{name} failed: {why}")
        again = f"rerun the same command{' without --force' * bool(forced)} to retry them"
        print_error(f"{len(failures)} of {len(experiment.models)} models failed; {again}")
        raise typer.Exit(1)


def _print_line(line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True)


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


def _print_plan(
    experiment: Reproduction, request: Request, targets: Sequence[Step[Any]], forced: Sequence[Step[Any]]
) -> None:
    """Prints the stages to run and why, with a forecast if any of them trains; or the DAG, for other programs."""
    store, options = request.store, request.options
    if (options.gpus or options.gpu) and not experiment.models:
        raise UserError(f"--gpus and --gpu forecast training runs, and {experiment.name} has none; drop them")
    # First, so that a wrong --gpu is reported before anything is printed.
    missing = to_run(targets, store, forced)
    fingerprints = {step.fingerprint for step in missing}
    runs = [model for model in experiment.models.values() if model.training.fingerprint in fingerprints]
    shown = None
    if (runs or options.gpu) and not (options.until or options.mermaid):
        shown = forecast(request.profile, runs, options.gpus, options.gpu, store)
    settings = request.profile.in_force(request.overrides)
    why = reasons(missing, store, artifacts_of(store, experiment.name, request.profile.name))
    if options.json:
        about = {"command": request.command.typed, "settings": settings, "store": str(store)}
        steps = planned(targets, store, why)
        print(json.dumps({**about, "steps": steps, "forecast": shown[1] if shown else None}, indent=2))
    elif options.mermaid:
        print(as_mermaid(planned(targets, store, why)))
    else:
        _print_line(settings)
        rows = {name: (model.results, _about(model)) for name, model in experiment.models.items()}
        print_plan(console, targets, rows, store, why, options.verbose)
        if shown:
            console.print(shown[0])


def _about(model: Cell) -> dict[str, str]:
    """Returns the plan's details of a training run."""
    training = model.recipe.training
    updates = training.kept_updates[-model.recipe.averaging.last :]
    averages = {"averages": f"{len(updates)} of {updates[0]:,} to {updates[-1]:,}"} if len(updates) > 1 else {}
    return {"updates": f"{training.updates:,}", "tokens an update": f"{training.budget_tokens:,}"} | averages


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
    store, address = request.store, request.options.address
    needed, target = [*to_run(targets, store, forced)], experiment.tabulate({})
    with ExitStack() as during:
        if needed:
            if mlflow:
                mlflow.check_address()
            dashboard = during.enter_context(cluster(address))  # for everything below
            places = [f"{dashboard} (Ray)"] * bool(dashboard) + ([ui_command(mlflow.uri)] if mlflow else [])
            if places:
                _print_line(f"monitor: {', '.join(places)}")
        if forced:
            check_shared(store, address)
            _print_line(f"rerunning {len(needed)} stages; set aside {_set_aside(needed, store)} artifacts")
        command = request.command.typed
        run = during.enter_context(
            begun(store, experiment.name, request.profile.name, target, command, works=bool(needed))
        )
        if isinstance(request.profile, Profile):
            record(run.folder, request.profile)
        yield run


def _run(
    experiment: Reproduction, request: Request, recorded: Run, mlflow: Server
) -> tuple[Results, Mapping[str, str]]:
    """Runs missing steps and reports to MLflow; returns the results, and failures by model."""
    store, target = request.store, experiment.tabulate({})
    params = {**experiment.params, **({"overrides": request.overrides} if request.overrides else {})}
    workflow = Workflow(target.fingerprint, request.profile.name, params, experiment.models, experiment.is_served)
    with tracked(mlflow, workflow, store) as runs:
        artifact, failures = run_models(
            {name: Model(model.results, model.recipe.training) for name, model in experiment.models.items()},
            experiment.tabulate,
            store,
            [View(console), runs],
            request.options.address,
            experiment.tuned,
            artifacts_of(store, experiment.name, request.profile.name),
        )
        table: Results = artifact.load()
        reports = {
            name: report.published(store) for name, report in experiment.reports.items() if store.find(report.name)
        }
        runs.finish(artifact, table.metrics, reports, failures)
        recorded.finish(store, artifact, table.metrics, failures)
    return table, failures
