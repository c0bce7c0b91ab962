"""What a running stage works with; the first argument of every stage."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.store.build import Build

CHECK_S = 5.0
"""Minimum seconds between lock checks of a stage that reports often."""


def map_here(function: Callable[..., Any], calls: Iterable[Sequence[Any]]) -> Iterator[Any]:
    """Applies `function` to each argument list in this process; workflows use Ray tasks instead."""
    return (function(*arguments) for arguments in calls)


Listener = Callable[[dict[str, Any]], None]
"""Receives a stage's events."""


def ignore(event: dict[str, Any]) -> None:
    """Discards an event."""


@dataclass(frozen=True)
class Context:
    """What a running stage works with: its build folder, an event receiver and a parallel map."""

    folder: Path
    """The folder to write to. Initially empty, except for what a killed process left of a stage that resumes."""
    emit: Listener = ignore
    """Receives events: {"done": 3, "total": 9, "unit": "shards"} is progress, {"metrics": {...}, "step": n} metrics,
    {"waiting": "no GPU is free"} and {"starting": "compiling"} go to the screen, {"warning": ...} to the screen and the
    manifest."""
    map: Callable[..., Iterable[Any]] = map_here
    """`map(function, argument_lists)` yields results in order. `function` must be importable in other processes."""
    build: Build | None = None
    """The build folder for processes on other nodes; None: they see the same folders, and there is no lock."""
    device: str = "cpu"
    """The torch device reserved for the stage."""
    warnings: Sequence[str] = ()
    """For a table, the warnings of all stages behind it, each with its stages' labels; empty for other stages."""

    def progress(self, done: float, total: float, unit: str) -> None:
        """Reports progress. Raises LockLostError if another process has taken over (`Build.check`)."""
        if self.build:
            self.build.check(every_s=CHECK_S)
        self.emit({"done": done, "total": total, "unit": unit})
