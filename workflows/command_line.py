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


def command_line(name: str, changes: str) -> CommandLine:
    """Returns the command line of this process, which runs the experiment `name` by either of its names.

    If another program calls the experiment as a function, the only options are `changes`.
    """
    module, program, words = f"workflows.reproduce_{name}", Path(sys.argv[0]), sys.argv[1:]
    if words[:1] == [name] and (program.name == "aiayn" or program.parent.name == "cli"):  # python -m workflows.cli
        return CommandLine(typed=f"aiayn {typed(words)}")
    options = typed(words) if program.stem == module.rpartition(".")[2] or sys.argv[0] == module else changes
    return CommandLine(typed=f"python -m {module} {options}".strip())
