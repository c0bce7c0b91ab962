"""Imports of the commands before they run anything: seconds for every command, cached or not."""

import subprocess
import sys
from collections.abc import Iterable

from tests.support.slow_libraries import SLOW
from workflows.experiments import EXPERIMENTS

COMMANDS = {"workflows.cli.main", *(each.module for each in EXPERIMENTS.values()), "workflows.attention_figures"}
WAITING = ["training.on_ray", "evaluation.decoding", "export.mlflow_model"]
"""Modules that only wait for other processes, or pack their results."""


def loaded_by(modules: Iterable[str]) -> set[str]:
    script = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_commands_import_no_large_library() -> None:
    loaded = loaded_by(COMMANDS)
    assert loaded >= COMMANDS
    assert loaded & SLOW == set()


def test_what_only_waits_does_not_import_torch() -> None:
    assert "torch" not in loaded_by(f"pipeline.{module}" for module in WAITING)
