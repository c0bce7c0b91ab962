"""What the commands import before they run anything: seconds that every command takes, cached or not."""

import subprocess
import sys

import pytest

from tests.support.slow_libraries import SLOW

COMMANDS = ["cli.main", "reproduce_table1", "reproduce_table2", "reproduce_table3", "reproduce_table4"]
WAITING = ["pipeline.training.on_ray", "pipeline.evaluation.decoding", "pipeline.export.mlflow_model"]
"""They wait for processes that compute, or pack what was computed."""


def loaded_by(module: str) -> set[str]:
    """Returns what a new process has loaded once it has imported the module."""
    told = f"import sys, {module}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_import_no_large_library(command: str) -> None:
    """A command's module and the stages that it declares load in a new process without any of them."""
    loaded = loaded_by(f"workflows.{command}")
    assert f"workflows.{command}" in loaded
    assert loaded & SLOW == set()


@pytest.mark.parametrize("module", WAITING)
def test_what_only_waits_does_not_import_torch(module: str) -> None:
    """Each of these processes would take two seconds of a core for it."""
    assert "torch" not in loaded_by(module)
