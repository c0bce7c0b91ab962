"""The build folder of an artifact, as seen by worker processes on any node.

    with scratch.writing("train/00000.arrow") as writing:   # in a task on any node
        ...                                                 # write writing.paths[0]
    return writing.written                                  # its hash, for Context.add in the stage

    with scratch.opened() as folder:        # in a long-running process
        ...                                 # write folder/checkpoints/00000050
        scratch.keep("checkpoints/00000050")
    scratch.collect()                       # in the stage, after these processes

`keep` takes an append-only file, or an artifact, whose manifest is uploaded last: if the manifest is there, all is.

A process that was cut off may have lost its lock, and then its files, to another one: `check` raises LockLostError, and
nothing is written or removed.
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
from pipeline.store.names import inside

if TYPE_CHECKING:  # so that serving a model needs no object-store client
    from pipeline.store.bucket import Bucket

MANIFEST = "manifest.json"
BUILD_PREFIX = ".making-"
"""Prefix of the temporary folder in which an artifact is built."""
HIDDEN = ".temporary-"
"""Prefix of folders in it that never become part of the artifact."""
ASIDE_PREFIX = ".aside-"
"""Prefix of folders of damaged files, which are neither used nor deleted."""

CHECK_S = 5.0
"""Minimum seconds between lock checks of a stage that reports often."""

logger = logging.getLogger(__name__)


class LockLostError(UserError):
    """Another process has taken over the artifact because this one went silent."""

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Returns the error for a process that was building `folder`."""
        return cls(
            f"another command has taken over {folder} because this one went silent; let that one finish, "
            "or stop it and run the same command again"
        )


@dataclass(frozen=True)
class Written:
    """A file of an artifact, hashed by the process that wrote it."""

    name: str
    """Path relative to the build folder."""
    size_bytes: int
    sha256: str


@dataclass
class Writing:
    """Files that are being written."""

    paths: list[Path]
    """Paths on this node."""
    written: list[Written] = field(default_factory=list)
    """The same files, filled in when complete."""


def aside_path(folder: Path) -> Path:
    """Returns an unused path beside a folder, for setting it or parts of it aside."""
    return folder.with_name(f"{ASIDE_PREFIX}{folder.name.removeprefix(BUILD_PREFIX)}-{secrets.token_hex(4)}")


def remove(folder: Path) -> None:
    """Deletes a folder or file, if it is there. Raises UserError if a process uses it, or the file system denies it."""
    try:
        folder.unlink() if folder.is_file() else shutil.rmtree(folder)
    except FileNotFoundError:  # deleted by another process
        pass
    except OSError as error:
        why = f"({error}); end the process that uses it, or move it elsewhere"
        raise UserError(f"{folder} cannot be deleted {why}") from None


@contextmanager
def temporary_folder(within: Path) -> Iterator[Path]:
    """Yields a HIDDEN folder within a build folder; a file server may retain files that a process still has open."""
    with TemporaryDirectory(dir=within, prefix=HIDDEN, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


class BucketStore(Protocol):
    """A store in a bucket with a copy on each machine."""

    @property
    def bucket(self) -> Bucket:
        """The bucket."""

    @property
    def artifacts(self) -> Path:
        """The folder of this machine's copies."""

    def fetch(self, name: str, parts: Iterable[str] | None = None) -> Path:
        """Downloads files of a published artifact, all or `parts`; returns their folder on this machine."""

    def in_use(self, folder: Path) -> AbstractContextManager[None]:
        """Keeps other commands on this machine from deleting a folder during the body."""

    def workspace(self, kind: str) -> AbstractContextManager[Path]:
        """Yields the path of a private folder, which is removed after the body."""


@dataclass
class Scratch:
    """A build folder: on a disk shared by all nodes, or one per node, synchronised through a bucket.

    Picklable.
    """

    folder: Path
    store: BucketStore | None = field(default=None, kw_only=True)
    """None: all nodes share the disk, so nothing is copied."""
    is_ours: Callable[[], bool] | None = field(default=None, kw_only=True)
    """Whether the stage still holds the artifact's lock; picklable. None: there is no lock."""
    _checked_s: float = field(default=-math.inf, kw_only=True)
    """Time of the last check, on this machine's clock."""
    _pending: list[str] = field(default_factory=list, kw_only=True)
    """Parts whose upload has failed so far."""

    def __getstate__(self) -> dict[str, Any]:
        """Drops the time of the last check, which other machines' clocks do not share."""
        return {**self.__dict__, "_checked_s": -math.inf}

    def check(self, every_s: float = 0.0) -> None:
        """Raises LockLostError if another process has taken over; checks at most once in `every_s` seconds.

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
        """Yields the folder on this node with all kept parts; parts kept in the body are safe after it.

        Raises BucketError if the last uploads fail.
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
            self._upload_pending()
        if not is_stage_folder:
            shutil.rmtree(here, ignore_errors=True)

    def keep(self, part: str) -> None:
        """Uploads a file of the folder, or an artifact in it, for other nodes, replacing its earlier version.

        If the bucket does not answer, logs a warning and retries in the next call. Raises LockLostError (`check`).
        """
        self.check()
        if self.store is None:
            return
        self._pending = [*(owed for owed in self._pending if owed != part), part]
        try:
            self._upload_pending()
        except BucketError as error:
            logger.warning("%s is only on this machine (%s)", part, error)

    def drop(self, part: str) -> None:
        """Removes a kept file or artifact. Raises LockLostError (`check`)."""
        self.check()
        if part in self._pending:
            self._pending.remove(part)
        try:
            if self.store:
                self.store.bucket.remove_folder(f"{self._place}/{part}")
        except BucketError as error:
            logger.warning("%s was not removed (%s)", part, error)

    def set_aside(self, parts: Iterable[str]) -> Path:
        """Moves artifacts to a new folder beside this one, also in the bucket, and returns its path.

        Raises LockLostError (`check`), and BucketError if the bucket does not answer.
        """
        self.check()
        aside = aside_path(self.folder)
        for part in parts:
            if self.store:
                self.store.bucket.move_folder(f"{self._place}/{part}", f"store/{aside.name}/{part}")
            (aside / part).parent.mkdir(parents=True, exist_ok=True)
            os.rename(self.folder / part, aside / part)
        return aside

    def collect(self) -> None:
        """Downloads all kept parts into the stage's folder. Raises BucketError if the bucket does not answer."""
        if self.store is None:
            return
        bucket = self.store.bucket
        kinds = {name.partition("/")[0] for name in self._kept_bytes(bucket) if "/" in name}
        for artifact in [folder for kind in kinds for folder in self.folder.glob(f"{kind}/*")]:
            manifest = artifact / MANIFEST
            kept = bucket.read(f"{self._place}/{manifest.relative_to(self.folder).as_posix()}")
            if not (kept and manifest.is_file() and manifest.read_bytes() == kept.data):
                remove(artifact)
        self._pull(bucket, operator.ne)

    @contextmanager
    def writing(self, *names: str) -> Iterator[Writing]:
        """Yields paths on this node for files or folders of the build folder, hashed after the body.

        Each attempt writes to its own folder, since another attempt, presumed dead by Ray, may still be running.
        Without a shared disk, the files are then moved to the bucket. Replaces files of these names from earlier
        attempts. Raises LockLostError (`check`), before and after the body.
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
        """Downloads an input of the stage, or a file or folder in one; returns its path on this node.

        A local file that belongs to no copy, such as a user's model, stays in place.
        """
        if self.store is None or (self.store.artifacts.parent.name not in path.resolve().parts and path.exists()):
            return path
        if self.store.artifacts.name not in path.parts:
            raise UserError(f"{path} is missing on this machine; check the path")
        within = len(path.parts) - path.parts[::-1].index(self.store.artifacts.name)
        name, *part = path.parts[within:]
        return self.store.fetch(name, ["/".join(part)] if part else None).joinpath(*part)

    @property
    def _place(self) -> str:
        return f"store/{self.folder.name}"

    def _pull(self, bucket: Bucket, differs: Callable[[int, int], bool]) -> None:
        """Downloads kept artifacts that are missing here, and files whose local size `differs`."""
        kept_bytes = self._kept_bytes(bucket)
        for folder in sorted({name.rpartition("/")[0] for name in kept_bytes if "/" in name}):
            manifest = f"{folder}/{MANIFEST}"
            if manifest not in kept_bytes:
                logger.warning("skipping %s/%s/%s, which is incomplete", bucket.uri, self._place, folder)
            elif not (self.folder / manifest).is_file():
                names = [name for name in kept_bytes if name.startswith(f"{folder}/") and name != manifest]
                self._download(bucket, names)
                self._download(bucket, [manifest])
        files = [name for name in kept_bytes if "/" not in name]
        self._download(bucket, [name for name in files if differs(self._size_bytes(name), kept_bytes[name])])

    def _kept_bytes(self, bucket: Bucket) -> dict[str, int]:
        """Returns the sizes of kept files by name. Raises BucketError for a name that leads elsewhere."""
        sizes_bytes = bucket.sizes_bytes(self._place)
        try:
            return {inside(name): size for name, size in sizes_bytes.items()}
        except ValueError as error:
            raise BucketError(f"{bucket.uri}/{self._place}: {error}; remove that object") from None

    def _size_bytes(self, name: str) -> int:
        path = self.folder / name
        return path.stat().st_size if path.is_file() else -1

    def _download(self, bucket: Bucket, names: list[str]) -> None:
        bucket.download({f"{self._place}/{name}": self.folder / name for name in names})

    def _upload_pending(self) -> None:
        """Uploads the pending parts."""
        while self.store and self._pending:
            path = self.folder / self._pending[0]
            files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
            names = {f"{self._place}/{file.relative_to(self.folder).as_posix()}": file for file in files}
            manifest = {name: names.pop(name) for name in [*names] if names[name] == path / MANIFEST}
            self.store.bucket.upload(names)
            self.store.bucket.upload(manifest)
            del self._pending[0]
