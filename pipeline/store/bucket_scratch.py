"""The folder in which an artifact is made, for nodes that share no disk: what is kept goes through a bucket."""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from pipeline.store.bucket import Bucket, BucketError
from pipeline.store.locks import machine
from pipeline.store.scratch import A, Scratch

logger = logging.getLogger(__name__)


class Nearby(Protocol):
    """A store whose artifacts can be had on any node."""

    def fetch(self, name: str) -> Path:
        """Returns a folder on this machine with the files of a published artifact."""

    def working_folder(self, name: str) -> Path:
        """Returns the folder on this machine for the unfinished files of an artifact that another machine makes."""


@dataclass
class BucketScratch(Scratch):
    """A folder on the stage's node; on others, one of their own. What is kept goes through a bucket."""

    store: Nearby
    name: str
    """The artifact's name."""
    bucket: Bucket
    place: str
    """The folder in the bucket."""
    machine: str
    """Where the stage's own folder is."""
    _owed: list[str] = field(default_factory=list)
    """What could not be kept yet."""

    @contextmanager
    def opened(self) -> Iterator[Path]:
        """See `Scratch.opened`. Raises BucketError if the bucket does not take what is still to be kept."""
        here = self.store.working_folder(self.name)
        at_stage = machine() == self.machine and self.folder.is_dir() and here.parent == self.folder.parent
        self.folder = self.folder if at_stage else here
        self.folder.mkdir(parents=True, exist_ok=True)
        self._pull()
        yield self.folder
        self._settle()
        if not at_stage:
            shutil.rmtree(self.folder, ignore_errors=True)

    def keep(self, part: str) -> None:
        """See `Scratch.keep`. Where the bucket does not answer, the next call tries again, after a warning."""
        self._owed = [*(owed for owed in self._owed if owed != part), part]
        try:
            self._settle()
        except BucketError as error:
            logger.warning("%s is on this machine alone (%s)", part, error)

    def drop(self, part: str) -> None:
        """See `Scratch.drop`."""
        if part in self._owed:
            self._owed.remove(part)
        try:
            self.bucket.remove_folder(f"{self.place}/{part}")
        except BucketError as error:
            logger.warning("%s was not removed (%s)", part, error)

    def collect(self) -> None:
        """See `Scratch.collect`. Raises BucketError where the bucket does not answer."""
        kept = self.bucket.sizes_bytes(self.place)
        folders = {name.partition("/")[0] for name in kept if "/" in name}
        for path in [path for folder in folders for path in (self.folder / folder).rglob("*") if path.is_file()]:
            if path.relative_to(self.folder).as_posix() not in kept:
                path.unlink()
        self._download([name for name, size in kept.items() if _size_bytes(self.folder / name) != size])
        for folder in [path for name in folders for path in (self.folder / name).glob("*") if path.is_dir()]:
            if not any(folder.iterdir()):
                folder.rmdir()

    def on_this_node(self, artifact: A) -> A:
        """See `Scratch.on_this_node`."""
        return replace(artifact, folder=self.store.fetch(artifact.folder.name))  # type: ignore[type-var]

    def _pull(self) -> None:
        """Downloads what this node lacks; of a file that grows, the longer one is the newer one."""
        kept = self.bucket.sizes_bytes(self.place)
        self._download([name for name, size in kept.items() if _size_bytes(self.folder / name) < size])

    def _download(self, names: list[str]) -> None:
        self.bucket.download_files({f"{self.place}/{name}": self.folder / name for name in names})

    def _settle(self) -> None:
        """Copies what is owed to the bucket."""
        while self._owed:
            self._copy(self._owed[0])
            del self._owed[0]

    def _copy(self, part: str) -> None:
        path = self.folder / part
        files = [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if file.is_file()]
        names = {f"{self.place}/{file.relative_to(self.folder).as_posix()}": file for file in files}
        self.bucket.upload_files(names)


def _size_bytes(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
