"""The last lines that a workflow prints: where its report and models are, and the commands to go on with."""

import shlex
import shutil
import sys
from pathlib import Path

from workflows.names import DEFAULT_ROOT, model_names

MAX_MODELS = 4


def closing_lines(run: Path, report: str, model_command: str, curves: str) -> list[str]:
    """Returns the lines, whose commands can be pasted in this directory.

    `report` is the name of the page, `model_command` what `aiayn` does with the run's models, if anything, and `curves`
    MLflow's command.
    """
    lines = [f"report: {shown(run.parent / report)}"]
    if model_command and (names := model_names(run)):
        models = [str(_name(run.parent / name)) for name in names]
        more = f" and {len(models) - MAX_MODELS} more" if len(models) > MAX_MODELS else ""
        lines.append(f"models: {', '.join(models[:MAX_MODELS])}{more}")
        lines.append(f"{model_command}: {aiayn()} {model_command} {shlex.quote(models[0])}")
    return [*lines, f"curves: {curves}"]


def shown(path: Path) -> Path:
    """Returns a path relative to the working directory if it lies below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def aiayn() -> str:
    """Returns how the command `aiayn` of this installation is called here."""
    beside = Path(sys.executable).with_name("aiayn")
    on_path = shutil.which("aiayn")
    return "aiayn" if on_path and Path(on_path).samefile(beside) else shlex.quote(str(shown(beside)))


def _name(path: Path) -> Path:
    """Returns a name as it is understood here: with the folder of the output unless that is `runs`."""
    path = shown(path)
    return path.relative_to(DEFAULT_ROOT) if path.is_relative_to(DEFAULT_ROOT) else path
