"""The command that a process runs, as it was typed: a report prints it, and a table's manifest keeps it."""

import shlex
import sys
from pathlib import Path

from pipeline.settings import Settings, not_in_fingerprint


class CommandLine(Settings):
    """A command as it was typed, which is no part of what it makes."""

    typed: str = not_in_fingerprint("")


UNKNOWN = CommandLine()


def command_line(module: str, changes: str) -> CommandLine:
    """Returns the command line of this process, which runs `module`.

    In a process that runs something else, `module` is called as a function: then its only options are `changes`.
    """
    is_running = Path(sys.argv[0]).stem == module.rpartition(".")[2] or sys.argv[0] == module
    options = shlex.join(sys.argv[1:]) if is_running else changes
    return CommandLine(typed=f"python -m {module} {options}".strip())
