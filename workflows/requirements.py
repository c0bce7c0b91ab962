"""Checks the libraries that the project needs, and for files that hide its modules, before a command imports any.

`workflows/__init__.py` calls `check`, so that whatever is wrong is one line. Imports only the standard library.
"""

import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = ("model", "pipeline", "workflows")
HIDES = "hides a package of this name; rename it, or run elsewhere and without it in PYTHONPATH"


def requirements(*, optional: bool = False) -> list[str]:
    """Returns the required libraries, e.g. `torch>=2.11,<2.14`; if `optional`, those of the extras.

    In a clone they are pyproject.toml's, since a `git pull` changes these, not what is recorded of the installation.
    """
    if (file := ROOT / "pyproject.toml").is_file():
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        extras = [text for listed in project["optional-dependencies"].values() for text in listed]
        return list(dict.fromkeys(extras)) if optional else list(project["dependencies"])
    try:
        return [text for text in requires("aiayn") or () if ("extra ==" in text) is optional]
    except PackageNotFoundError:  # a copy on a cluster
        return []


def unmet(required: Iterable[str], *, missing: bool = True, too_new: bool = False) -> Iterator[str]:
    """Yields the libraries that are too old, and those `missing` or `too_new`, with what is needed instead."""
    for requirement in (text.partition(";")[0].strip() for text in required):
        bounds = {sign: _release(of) for sign, of in re.findall(r"(>=|<)\s*([\d.]+)", requirement)}
        try:
            here = version(name := _name(requirement))
            numbers = _release(here)
            if numbers < bounds.get(">=", []) or (too_new and numbers >= bounds.get("<", [sys.maxsize])):
                yield f"{name} is {here} ({requirement})"
        except PackageNotFoundError:
            if missing:
                yield f"{name} is missing ({requirement})"


def hiding(folders: Iterable[str]) -> Path | None:
    """Returns a file in the first of these folders, up to ours, that would be imported in place of a package."""
    for folder in map(Path, folders):
        if folder.resolve() == ROOT.resolve():
            return None
        modules = (folder / f"{name}.py" for name in [*OURS, *map(_name, requirements())])
        packages = (folder / name / "__init__.py" for name in OURS)
        if file := next((file for file in (*modules, *packages) if file.is_file()), None):
            return file
    return None


def check() -> None:
    """Ends a command that cannot work, with one line and status 2."""
    constraints, hidden = ROOT / "constraints.txt", hiding(sys.path)
    if problems := [f"{hidden.absolute()} {HIDES}"] if hidden else [*unmet(requirements())]:
        what = f"-c {constraints} -e {ROOT}" if constraints.is_file() else "--upgrade aiayn"
        remedy = "" if hidden else f": {sys.executable} -m pip install {what}"
        print(f"error: {'; '.join(problems)}{remedy}", file=sys.stderr)
        sys.exit(2)


def is_command() -> bool:
    """Whether this process is a command of ours: `python -m workflows...`, or `aiayn`."""
    return sys.argv[:1] == ["-m"] or os.path.basename(*sys.argv[:1] or [""]) == "aiayn"


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _release(version: str) -> list[int]:
    """Returns the numbers of a version up to its first letter: 2.13.0+cpu -> [2, 13, 0]."""
    return [int(number) for number in re.split(r"[^\d.]", version, maxsplit=1)[0].split(".") if number]
