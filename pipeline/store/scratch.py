"""The folder in which an artifact is made, as the processes that make it see it, on whatever nodes they run.

with scratch.opened() as folder:        # in any of the processes
    ...                                 # write folder/checkpoints/00000050
    scratch.keep("checkpoints/00000050")
scratch.collect()                       # in the stage, once they are done
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar


class HasFolder(Protocol):
    """An artifact, by the one thing that matters here."""

    @property
    def folder(self) -> Path:
        """Where its files are."""


A = TypeVar("A", bound=HasFolder)


@dataclass
class Scratch:
    """A folder on a disk that all nodes share, so there is nothing to carry. Instances are pickled."""

    folder: Path

    @contextmanager
    def opened(self) -> Iterator[Path]:
        """Yields the folder on this node, with what has been kept; whatever was kept in the body is safe after it."""
        yield self.folder

    def keep(self, part: str) -> None:
        """Puts a file of the folder, or a folder in it, where other nodes find it, in place of what was kept before."""

    def drop(self, part: str) -> None:
        """Removes what was kept of a file or folder."""

    def collect(self) -> None:
        """Brings the stage's own folder to what has been kept."""

    def on_this_node(self, artifact: A) -> A:
        """Returns an input of the stage with a folder that this node has."""
        return artifact
