"""The last lines that a workflow prints: where its report and models are, and the commands to go on with."""

import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from workflows.names import DEFAULT_ROOT, model_names

MAX_MODELS = 4
SCHEMES = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
"""How this interpreter lays out what is installed for all users, and for one."""


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
    """Returns how the command `aiayn` of this installation is called here.

    Not every pip installs it beside the interpreter: Debian's does not, and neither does `pip install --user`.
    """
    folders = [Path(sys.executable).parent, *(Path(sysconfig.get_path("scripts", scheme)) for scheme in SCHEMES)]
    installed = [folder / "aiayn" for folder in folders if (folder / "aiayn").is_file()]
    on_path = shutil.which("aiayn")
    if on_path and any(Path(on_path).samefile(script) for script in installed):
        return "aiayn"
    return shlex.quote(str(shown(installed[0]))) if installed else f"{shlex.quote(sys.executable)} -m workflows.cli"


def _name(path: Path) -> Path:
    """Returns a name as it is understood here: with the folder of the output unless that is `runs`."""
    path = shown(path)
    return path.relative_to(DEFAULT_ROOT) if path.is_relative_to(DEFAULT_ROOT) else path
