"""The experiments' commands: their options, their plan, and what they print.

request = requested("table3", load_profile(**text.given(common)), common)
return Reproduction("table3", ...), request             # by an experiment's `main`, whose app reproduces it
"""

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import typer

from pipeline.errors import UserError
from pipeline.store.store import Store
from workflows.cli.console import App, console, help_text, print_error, say
from workflows.cli.options import Common, with_options
from workflows.command_line import command_line
from workflows.engine.dag import Step
from workflows.engine.plan import as_mermaid, planned, print_plan, reasons, steps_of, to_run
from workflows.engine.progress import View
from workflows.experiment import Reproduction, Request, run_steps, run_table
from workflows.profiles.changes import BaseProfile, changes_typed
from workflows.profiles.profile import GENERATED
from workflows.runs import DEFAULT_ROOT, Run, artifacts_of, file_name
from workflows.tables.measured import Cell, listed, samples
from workflows.tables.render import render_terminal


@dataclass(frozen=True)
class Asked(Request):
    """A request with the options that its command has besides."""

    options: Common


def requested(name: str, profile: BaseProfile, options: Common) -> Asked:
    """Returns the request of the experiment `name` with these options. Raises UserError for an unusable store."""
    changes = changes_typed(options.config, options.overrides)
    store = Store.at(options.store).checked()
    curves = f"{aiayn()} curves {shlex.quote(named(store.root / name / file_name(profile.name)))}"
    typed, further = command_line(name, changes), (options.address, options.until, curves)
    return Asked(profile, store, typed, changes, *further, say, View(console), options)


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


def reproduce(experiment: Reproduction, request: Asked) -> None:
    """Prints the plan if requested; otherwise runs missing steps, reports to MLflow and prints the table.

    Raises UserError for options without effect, and typer.Exit with status 1 at the end if models failed.
    """
    options, store = request.options, request.store
    forms = [form for form in ("json", "mermaid", "verbose") if getattr(options, form)]
    if not options.plan and forms not in ([], ["verbose"]):
        raise UserError(f"--{forms[0]} only affects --plan; add --plan or drop it")
    if len(forms) > 1:
        raise UserError(f"--{forms[0]} and --{forms[1]} each print the plan in a form of their own; drop one")
    target = experiment.tabulate({})
    targets = steps_of([target], options.until, "until") if options.until else [target]
    forced = steps_of(targets, options.force, "force") if options.force else []
    if options.plan:
        _print_plan(experiment, request, targets, forced)
        return
    say(request.profile.in_force(request.overrides))
    if options.until:
        run_steps(experiment, request, targets, forced)
        for step in targets:
            say(f"{step.label}: {shown(store.folder(step.name))}")
        return
    run, table, failures = run_table(experiment, request, forced)
    console.print()
    console.print(render_terminal(table, console.width, verbose=options.verbose))
    console.print()
    commands = {"parse" if model.parses else "translate" for model in experiment.models.values()}
    model_command = commands.pop() if len(commands) == 1 else ""  # translators and parsers share none
    for line in closing_lines(run, store, model_command, request.curves):
        say(line)
    done = [model for name, model in experiment.models.items() if name not in failures and not model.parses]
    if experiment.name == "table2" and done and not done[0].data.startswith(GENERATED):
        say(f"\n{done[0].label} translates:\n\n{listed(samples(done[0].published(store))[::4])}".rstrip())
    if table.said:
        say(f"\n{table.said}")
    if failures:
        for name, why in failures.items():
            print_error(f"{name} failed: {why}")
        again = f"rerun the same command{' without --force' * bool(forced)} to retry them"
        print_error(f"{len(failures)} of {len(experiment.models)} models failed; {again}")
        raise typer.Exit(1)


def app_of(module: str, act: Callable[..., None] = reproduce, own: type | None = None, summary: str = "") -> App:
    """Returns the app that calls `act` with what an experiment's `main` describes, and the further options `own`."""
    found, app = import_module(module), App()

    def command(**options: Any) -> None:
        further = [options.pop("further")] if own else []
        if asked := found.main(**options):
            act(*asked, *further)

    shape = signature(found.main)
    added = [Parameter("further", Parameter.KEYWORD_ONLY, annotation=own)] if own else []
    command.__signature__ = shape.replace(parameters=[*shape.parameters.values(), *added])  # type: ignore[attr-defined]
    app.command(help=summary or help_text(found.__doc__))(with_options(command))
    return app


def _print_plan(
    experiment: Reproduction, request: Asked, targets: Sequence[Step[Any]], forced: Sequence[Step[Any]]
) -> None:
    """Prints the stages to run and why; or the DAG, for other programs."""
    store, options, profile = request.store, request.options, request.profile
    why = reasons(to_run(targets, store, forced), store, artifacts_of(store, experiment.name, profile.name))
    settings, steps = profile.in_force(request.overrides), planned(targets, store, why)
    if options.json:
        about = {"command": request.command.typed, "settings": settings, "store": str(store)}
        print(json.dumps({**about, "steps": steps}, indent=2))
    elif options.mermaid:
        print(as_mermaid(steps))
    else:
        say(settings)
        rows = {name: (model.results, _about(model)) for name, model in experiment.models.items()}
        print_plan(console, targets, rows, store, why, options.verbose)


def _about(model: Cell) -> dict[str, str]:
    """Returns the plan's details of a training run."""
    training = model.recipe.training
    updates = training.kept_updates[-model.recipe.averaging.last :]
    averages = {"averages": f"{len(updates)} of {updates[0]:,} to {updates[-1]:,}"} if len(updates) > 1 else {}
    return {"updates": f"{training.updates:,}", "tokens an update": f"{training.budget_tokens:,}"} | averages


def closing_lines(run: Run, store: Store, model_command: str, curves: str) -> list[str]:
    """Returns the closing lines; their commands can be pasted in this directory.

    `model_command` is the `aiayn` subcommand for the run's models or empty, `curves` the command for MLflow.
    """
    profile, models = run.folder.parent, [*run.models(store)]
    lines = [f"report: {shown(profile / 'report.html')}"]
    if model_command and models:
        models = [named(profile / name) for name in models]
        lines.append(f"models: {', '.join([*models[:4], '...'][: len(models)])}")
        lines.append(f"{model_command}: {aiayn()} {model_command} {shlex.quote(models[0])}")
    return [*lines, f"curves: {curves}"]


def shown(path: Path) -> Path:
    """Returns a path relative to the working directory if it lies below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def named(path: Path) -> str:
    """Returns the name by which commands find what is at a path: relative to `runs`, or like `shown`."""
    path = shown(path)
    return str(path.relative_to(DEFAULT_ROOT) if path.is_relative_to(DEFAULT_ROOT) else path)


def aiayn() -> str:
    """Returns the command line prefix that runs this installation's `aiayn`."""
    beside, on_path = Path(sys.executable).with_name("aiayn"), shutil.which("aiayn")
    if not beside.is_file():
        return f"{shlex.quote(sys.executable)} -m workflows.cli"
    return "aiayn" if on_path and Path(on_path).samefile(beside) else shlex.quote(str(shown(beside)))
