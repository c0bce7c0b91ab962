"""What the commands import before they run anything: seconds that every command takes, cached or not."""

import subprocess
import sys

import pytest

from tests.support.slow_libraries import SLOW

COMMANDS = ["cli.main", "reproduce_table1", "reproduce_table2", "reproduce_table3", "reproduce_table4"]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_import_no_large_library(command: str) -> None:
    """A command's module and the stages that it declares load in a new process without any of them."""
    told = f"import sys, workflows.{command}; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.split()
    )
    assert f"workflows.{command}" in loaded
    assert loaded & SLOW == set()
