"""The last lines that a workflow prints: where its report and models are, and the commands to go on with."""

import os
import shlex
import shutil
import sys
from pathlib import Path

from pipeline.store.store import LocalStore
from workflows.runs.names import DEFAULT_ROOT, model_names
from workflows.runs.record import Record

MOST_MODELS = 4


def closing_lines(store: LocalStore, record: Record, curves: str) -> list[str]:
    """Returns the lines, whose commands can be pasted in this directory; `curves` is MLflow's command."""
    place = Path(record.run.rpartition("/")[0])
    lines = [f"report: {shown(store.root / place / 'report.html')}"]
    if record.model_command and (names := model_names(record)):
        models = [str(_name(store, place / name)) for name in names]
        more = f" and {len(models) - MOST_MODELS} more" if len(models) > MOST_MODELS else ""
        lines.append(f"models: {', '.join(models[:MOST_MODELS])}{more}")
        lines.append(f"{record.model_command}: {aiayn()} {record.model_command} {shlex.quote(models[0])}")
    named = str(shown(store.root)) if store.is_shared else store.shown
    options = [] if shown(store.root) == DEFAULT_ROOT else ["--store", named]
    lines.append(f"runs: {shown(store.root / 'index.html')}, {aiayn()} {shlex.join(['runs', *options])}")
    return [*lines, f"curves: {curves}"]


def shown(path: Path) -> Path:
    """Returns a path relative to the working directory if it lies below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def aiayn() -> str:
    """Returns how the command `aiayn` of this installation is called here."""
    beside = Path(sys.executable).with_name("aiayn")
    if (found := shutil.which("aiayn")) and os.path.realpath(found) == os.path.realpath(beside):
        return "aiayn"
    if beside.is_file():
        return shlex.quote(str(shown(beside)))
    return f"{shlex.quote(str(shown(Path(sys.executable))))} -m workflows.cli"


def _name(store: LocalStore, name: Path) -> Path:
    """Returns a name as it is understood here: with the folder of the output unless that is `runs`."""
    root = shown(store.root)
    return name if root == DEFAULT_ROOT else root / name
