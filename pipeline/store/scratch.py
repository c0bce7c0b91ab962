"""The build folder of an artifact, as seen by the processes that build it, on any node.

with scratch.writing("train/00000.arrow") as writing:   # in a task, on any node
    ...                                                 # write the file writing.paths[0]
return writing.written                                  # its hash, for Context.add in the stage

with scratch.opened() as folder:        # in a process that goes on for hours
    ...                                 # write folder/checkpoints/00000050
    scratch.keep("checkpoints/00000050")
scratch.collect()                       # in the stage, once they are done

What is kept is a file, which may only grow, or an artifact, whose manifest is copied last: where that is, all of it is.

While a process was cut off from the others, one of them may have taken over its lock. From then on the files are the
other's: `check` raises LockLostError, and nothing is written or removed.
"""

from __future__ import annotations

import logging
import math
import operator
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol, Self

from pipeline.errors import BucketError, UserError
from pipeline.store.hashes import file_sha256

if TYPE_CHECKING:  # so that a served model needs no client of object stores
    from pipeline.store.bucket import Bucket

MANIFEST = "manifest.json"
MAKING = ".making-"
"""Prefix of the temporary folder in which an artifact is built."""
ASIDE = ".aside-"
"""Prefix of a folder of damaged files, which are neither used nor deleted."""

CHECK_S = 5.0
"""Seconds between two checks that no other process has taken over the artifact, for a stage that often asks."""

logger = logging.getLogger(__name__)


class LockLostError(UserError):
    """Another process has taken over the artifact because this one went silent."""

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Returns the error of a process that was building `folder`."""
        return cls(
            f"another command has taken over {folder} because this one went silent; let that one finish, "
            "or stop it and run the same command again"
        )


@dataclass(frozen=True)
class Written:
    """A file of an artifact, as hashed by the process that wrote it."""

    name: str
    """Where it was written, relative to the build folder."""
    size_bytes: int
    sha256: str


@dataclass
class Writing:
    """Files that are being written."""

    paths: list[Path]
    """Their paths on this node."""
    written: list[Written] = field(default_factory=list)
    """The same files, once they are complete."""


def aside_of(folder: Path) -> Path:
    """Returns an unused name beside a folder, for it or parts of it to be set aside."""
    return folder.with_name(f"{ASIDE}{folder.name.removeprefix(MAKING)}-{secrets.token_hex(4)}")


@contextmanager
def temporary_folder(within: Path) -> Iterator[Path]:
    """Provides a folder within a build folder, which is removed after the body and never part of the artifact.

    A file server may keep some of its files, as long as a process has them open.
    """
    with TemporaryDirectory(dir=within, prefix=".temporary-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


class Copies(Protocol):
    """A store in a bucket, of which each machine has copies."""

    @property
    def bucket(self) -> Bucket:
        """The bucket."""

    @property
    def artifacts(self) -> Path:
        """The folder on this machine that holds the copies."""

    def fetch(self, name: str, parts: Iterable[str] | None = None) -> Path:
        """Returns a folder on this machine with files of a published artifact: all, or those that `parts` name."""

    def in_use(self, folder: Path) -> AbstractContextManager[None]:
        """Keeps other commands on this machine from deleting a folder while the body uses it."""

    def workspace(self, kind: str) -> AbstractContextManager[Path]:
        """Yields the path of a folder for this process alone, which is removed after the body."""


@dataclass
class Scratch:
    """A folder on a disk that all nodes share, or one on each of them, and what is kept goes through a bucket.

    Instances are pickled.
    """

    folder: Path
    store: Copies | None = field(default=None, kw_only=True)
    """None: all nodes share the disk, so there is nothing to carry."""
    is_ours: Callable[[], bool] | None = field(default=None, kw_only=True)
    """Whether the stage still holds the artifact's lock; picklable. None: no other process can take it."""
    _checked_s: float = field(default=-math.inf, kw_only=True)
    """Time of the last check by this machine's clock."""
    _owed: list[str] = field(default_factory=list, kw_only=True)
    """What could not be kept yet."""

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the time of the last check, which is that of another clock on another machine."""
        return {**self.__dict__, "_checked_s": -math.inf}

    def check(self, every_s: float = 0.0) -> None:
        """Raises LockLostError if another process has taken over; asks at most once in `every_s` seconds.

        If the lock cannot be read, the previous answer stands.
        """
        if self.is_ours is None or time.monotonic() - self._checked_s < every_s:
            return
        with suppress(OSError):
            if not self.is_ours():
                raise LockLostError.of(self.folder)
        self._checked_s = time.monotonic()

    @contextmanager
    def opened(self) -> Iterator[Path]:
        """Yields the folder on this node, with what has been kept; whatever was kept in the body is safe after it.

        Raises BucketError if the bucket does not take what is still to be kept.
        """
        if self.store is None:
            yield self.folder
            return
        here = self.store.artifacts / self.folder.name
        is_stage_folder = here == self.folder and here.is_dir()
        self.folder = here
        with self.store.in_use(here):
            here.mkdir(parents=True, exist_ok=True)
            self._pull(self.store.bucket, operator.lt)
            yield here
            self._settle()
        if not is_stage_folder:
            shutil.rmtree(here, ignore_errors=True)

    def keep(self, part: str) -> None:
        """Puts a file of the folder, or an artifact in it, where other nodes find it, in place of what was kept before.

        Where the bucket does not answer, the next call tries again, after a warning. Raises LockLostError (`check`).
        """
        self.check()
        if self.store is None:
            return
        self._owed = [*(owed for owed in self._owed if owed != part), part]
        try:
            self._settle()
        except BucketError as error:
            logger.warning("%s is on this machine alone (%s)", part, error)

    def drop(self, part: str) -> None:
        """Removes what was kept of a file or an artifact. Raises LockLostError (`check`)."""
        self.check()
        if part in self._owed:
            self._owed.remove(part)
        try:
            if self.store:
                self.store.bucket.remove_folder(f"{self._place}/{part}")
        except BucketError as error:
            logger.warning("%s was not removed (%s)", part, error)

    def set_aside(self, parts: Iterable[str]) -> Path:
        """Moves artifacts to a new folder beside this one, in the bucket too, and returns its path.

        Raises LockLostError (`check`), and BucketError where the bucket does not answer.
        """
        self.check()
        aside = aside_of(self.folder)
        for part in parts:
            if self.store:
                self.store.bucket.move_folder(f"{self._place}/{part}", f"store/{aside.name}/{part}")
            (aside / part).parent.mkdir(parents=True, exist_ok=True)
            os.rename(self.folder / part, aside / part)
        return aside

    def collect(self) -> None:
        """Brings the stage's own folder to what has been kept. Raises BucketError where the bucket does not answer."""
        if self.store is None:
            return
        bucket = self.store.bucket
        kinds = {name.partition("/")[0] for name in bucket.sizes_bytes(self._place) if "/" in name}
        for artifact in [folder for kind in kinds for folder in self.folder.glob(f"{kind}/*")]:
            manifest = artifact / MANIFEST
            kept = bucket.read(f"{self._place}/{manifest.relative_to(self.folder).as_posix()}")
            if not (kept and manifest.is_file() and manifest.read_bytes() == kept.data):
                shutil.rmtree(artifact)
        self._pull(bucket, operator.ne)

    @contextmanager
    def writing(self, *names: str) -> Iterator[Writing]:
        """Provides paths on this node for files of the build folder, or folders of them, to be hashed after the body.

        Each attempt writes to a folder of its own: another one, of a task that Ray took for lost, may still be alive.
        Where the nodes share no disk, the files are then in the bucket, and no longer on this node. Files of these
        names that an earlier attempt wrote are replaced. Raises LockLostError (`check`), before the body and after it.
        """
        self.check()
        with temporary_folder(self.folder) if self.store is None else self.store.workspace("writing") as folder:
            writing = Writing([folder / name for name in names])
            for path in writing.paths:
                path.parent.mkdir(parents=True, exist_ok=True)
            yield writing
            self.check()
            for path in writing.paths:
                for file in sorted(filter(Path.is_file, path.rglob("*"))) if path.is_dir() else [path]:
                    name = file.relative_to(folder).as_posix()
                    writing.written.append(Written(name, file.stat().st_size, file_sha256(file)))
            if self.store:
                self.store.bucket.upload({f"{self._place}/{each.name}": folder / each.name for each in writing.written})
            else:
                for each in writing.written:
                    (self.folder / each.name).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(folder / each.name, self.folder / each.name)

    def on_this_node(self, path: Path) -> Path:
        """Returns the path on this node of an input of the stage, or of a file or folder in one, and brings it here.

        A file of this machine that is in no copy, such as a user's model, stays where it is.
        """
        if self.store is None or (self.store.artifacts.parent.name not in path.resolve().parts and path.exists()):
            return path
        within = len(path.parts) - path.parts[::-1].index(self.store.artifacts.name)
        name, *part = path.parts[within:]
        return self.store.fetch(name, ["/".join(part)] if part else None).joinpath(*part)

    @property
    def _place(self) -> str:
        return f"store/{self.folder.name}"

    def _pull(self, bucket: Bucket, differs: Callable[[int, int], bool]) -> None:
        """Downloads the artifacts that have been kept and are not here, and the files whose size here `differs`."""
        kept_bytes = bucket.sizes_bytes(self._place)
        for folder in sorted({name.rpartition("/")[0] for name in kept_bytes if "/" in name}):
            manifest = f"{folder}/{MANIFEST}"
            if manifest not in kept_bytes:
                logger.warning("%s/%s/%s is not whole; it is passed over", bucket.uri, self._place, folder)
            elif not (self.folder / manifest).is_file():
                names = [name for name in kept_bytes if name.startswith(f"{folder}/") and name != manifest]
                self._download(bucket, names)
                self._download(bucket, [manifest])
        files = [name for name in kept_bytes if "/" not in name]
        self._download(bucket, [name for name in files if differs(self._size_bytes(name), kept_bytes[name])])

    def _size_bytes(self, name: str) -> int:
        path = self.folder / name
        return path.stat().st_size if path.is_file() else -1

    def _download(self, bucket: Bucket, names: list[str]) -> None:
        bucket.download({f"{self._place}/{name}": self.folder / name for name in names})

    def _settle(self) -> None:
        """Copies what is owed to the bucket."""
        while self.store and self._owed:
            path = self.folder / self._owed[0]
            files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
            names = {f"{self._place}/{file.relative_to(self.folder).as_posix()}": file for file in files}
            manifest = {name: names.pop(name) for name in [*names] if names[name] == path / MANIFEST}
            self.store.bucket.upload(names)
            self.store.bucket.upload(manifest)
            del self._owed[0]
