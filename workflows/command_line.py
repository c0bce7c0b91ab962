"""The command line of a process as typed, for reports and for the manifests of tables."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.settings import Settings, not_in_fingerprint


class CommandLine(Settings):
    """A command as typed; it does not change fingerprints."""

    typed: str = not_in_fingerprint("")


UNKNOWN = CommandLine()


def typed(words: Sequence[str]) -> str:
    """Quotes words for a shell. Where Python has read their UTF-8 in another encoding, they are text again."""
    return shlex.join(words).encode(errors="surrogateescape").decode(errors="backslashreplace")


def command_line(module: str, changes: str) -> CommandLine:
    """Returns the command line of this process, which runs `module`.

    If another program calls `module` as a function, the only options are `changes`.
    """
    is_running = Path(sys.argv[0]).stem == module.rpartition(".")[2] or sys.argv[0] == module
    options = typed(sys.argv[1:]) if is_running else changes
    return CommandLine(typed=f"python -m {module} {options}".strip())
