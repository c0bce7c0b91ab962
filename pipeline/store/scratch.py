"""The folder in which an artifact is made, as the processes that make it see it, on whatever nodes they run.

with scratch.opened() as folder:        # in any of the processes
    ...                                 # write folder/checkpoints/00000050
    scratch.keep("checkpoints/00000050")
scratch.collect()                       # in the stage, once they are done
"""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pipeline.store.bucket import Bucket, BucketError

logger = logging.getLogger(__name__)


class Copies(Protocol):
    """A store in a bucket, of which each machine has copies."""

    @property
    def bucket(self) -> Bucket:
        """The bucket."""

    @property
    def artifacts(self) -> Path:
        """The folder on this machine that holds the copies."""

    def fetch(self, name: str) -> Path:
        """Returns a folder on this machine with the files of a published artifact."""


@dataclass
class Scratch:
    """A folder on a disk that all nodes share, or one on each of them, and what is kept goes through a bucket.

    Instances are pickled.
    """

    folder: Path
    store: Copies | None = field(default=None, kw_only=True)
    """None: all nodes share the disk, so there is nothing to carry."""
    _owed: list[str] = field(default_factory=list, kw_only=True)
    """What could not be kept yet."""

    @contextmanager
    def opened(self) -> Iterator[Path]:
        """Yields the folder on this node, with what has been kept; whatever was kept in the body is safe after it.

        Raises BucketError if the bucket does not take what is still to be kept.
        """
        if self.store is None:
            yield self.folder
            return
        here = self.store.artifacts / self.folder.name
        is_the_stage_s = here == self.folder and here.is_dir()
        self.folder = here
        here.mkdir(parents=True, exist_ok=True)
        # Of a file that grows, the longer one is the newer one.
        self._download({name for name, size in self._kept_bytes().items() if _size_bytes(here / name) < size})
        yield here
        self._settle()
        if not is_the_stage_s:
            shutil.rmtree(here, ignore_errors=True)

    def keep(self, part: str) -> None:
        """Puts a file of the folder, or a folder in it, where other nodes find it, in place of what was kept before.

        Where the bucket does not answer, the next call tries again, after a warning.
        """
        if self.store is None:
            return
        self._owed = [*(owed for owed in self._owed if owed != part), part]
        try:
            self._settle()
        except BucketError as error:
            logger.warning("%s is on this machine alone (%s)", part, error)

    def drop(self, part: str) -> None:
        """Removes what was kept of a file or folder."""
        if part in self._owed:
            self._owed.remove(part)
        try:
            if self.store:
                self.store.bucket.remove_folder(f"{self._place}/{part}")
        except BucketError as error:
            logger.warning("%s was not removed (%s)", part, error)

    def collect(self) -> None:
        """Brings the stage's own folder to what has been kept. Raises BucketError where the bucket does not answer."""
        kept_bytes = self._kept_bytes()
        for folder in {name.partition("/")[0] for name in kept_bytes if "/" in name}:
            for path in sorted((self.folder / folder).rglob("*"), reverse=True):  # what is in a folder before itself
                if path.is_file() and path.relative_to(self.folder).as_posix() not in kept_bytes:
                    path.unlink()
                elif path.is_dir() and not any(path.iterdir()):
                    path.rmdir()
        self._download({name for name, size in kept_bytes.items() if _size_bytes(self.folder / name) != size})

    def on_this_node(self, folder: Path) -> Path:
        """Returns the folder on this node of an input of the stage."""
        return self.store.fetch(folder.name) if self.store else folder

    @property
    def _place(self) -> str:
        return f"store/{self.folder.name}"

    def _kept_bytes(self) -> dict[str, int]:
        """Returns the sizes of the files that have been kept."""
        return self.store.bucket.sizes_bytes(self._place) if self.store else {}

    def _download(self, names: set[str]) -> None:
        if self.store:
            self.store.bucket.download({f"{self._place}/{name}": self.folder / name for name in names})

    def _settle(self) -> None:
        """Copies what is owed to the bucket."""
        while self.store and self._owed:
            path = self.folder / self._owed[0]
            files = [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if file.is_file()]
            names = {f"{self._place}/{file.relative_to(self.folder).as_posix()}": file for file in files}
            self.store.bucket.upload(names)
            del self._owed[0]


def _size_bytes(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
