"""Imports of the commands before they run anything: seconds for every command, cached or not."""

import subprocess
import sys
from collections.abc import Iterable

import pytest

from tests.support.slow_libraries import SLOW
from workflows.experiments import EXPERIMENTS

COMMANDS = {"workflows.cli.main", *(each.module for each in EXPERIMENTS.values())}
WAITING = ["training.on_ray", "evaluation.decoding", "export.mlflow_model"]
"""Modules that only wait for other processes, or pack their results."""


def loaded_by(modules: Iterable[str], *arguments: str) -> set[str]:
    """The modules that these import, and for `arguments` also those of running `aiayn` with them."""
    run = f"import atexit, sys, {', '.join(modules)}; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    script = f"{run}; sys.argv[1:] and workflows.cli.main.main()"
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_commands_import_no_large_library() -> None:
    loaded = loaded_by(COMMANDS)
    assert loaded >= COMMANDS
    assert loaded & SLOW == set()


@pytest.mark.parametrize("arguments", [["--help"], ["runs", "--help"], ["table1", "--help"]], ids=" ".join)
def test_aiayn_imports_only_the_experiment_it_runs(arguments: list[str]) -> None:
    loaded = loaded_by(["workflows.cli.main"], *arguments)
    assert loaded & SLOW == set()
    named = {EXPERIMENTS[name].module for name in arguments if name in EXPERIMENTS}
    assert loaded & COMMANDS == {"workflows.cli.main", *named}


def test_what_only_waits_does_not_import_torch() -> None:
    assert "torch" not in loaded_by(f"pipeline.{module}" for module in WAITING)
