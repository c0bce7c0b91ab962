"""A workflow's closing lines: paths of its report and models, and the next commands."""

import shlex
import shutil
import sys
from pathlib import Path

from pipeline.store.store import Store
from workflows.runs import DEFAULT_ROOT, Run

MAX_MODELS = 4


def closing_lines(run: Run, store: Store, model_command: str, curves: str) -> list[str]:
    """Returns the closing lines; their commands can be pasted in this directory.

    `model_command` is the `aiayn` subcommand for the run's models or empty, `curves` MLflow's command.
    """
    profile, models = run.folder.parent, [*run.models(store)]
    lines = [f"report: {shown(profile / 'report.html')}"]
    if model_command and models:
        paths = [shown(profile / name) for name in models]  # without `runs`, as commands accept them
        models = [str(path.relative_to(DEFAULT_ROOT) if path.is_relative_to(DEFAULT_ROOT) else path) for path in paths]
        more = f" and {len(models) - MAX_MODELS} more" if len(models) > MAX_MODELS else ""
        lines.append(f"models: {', '.join(models[:MAX_MODELS])}{more}")
        lines.append(f"{model_command}: {aiayn()} {model_command} {shlex.quote(models[0])}")
    return [*lines, f"curves: {curves}"]


def shown(path: Path) -> Path:
    """Returns a path relative to the working directory if it lies below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def aiayn() -> str:
    """Returns the command line prefix that runs this installation's `aiayn`."""
    beside, on_path = Path(sys.executable).with_name("aiayn"), shutil.which("aiayn")
    if not beside.is_file():
        return f"{shlex.quote(sys.executable)} -m workflows.cli"
    return "aiayn" if on_path and Path(on_path).samefile(beside) else shlex.quote(str(shown(beside)))
