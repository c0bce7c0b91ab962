"""Locks that let one process at a time build an artifact, across processes, Ray clusters and hosts.

    with FileLock(folder, "train en-de base") as lock:
        owner = lock.take()  # None: we hold the lock until the end of the block; else its owner

A file lock is the kernel's (`flock`) on the file `<parent>/.locks/<name>.lock`, which names its owner. It ends with its
process, however that ends; on NFS 4 the server enforces it across hosts.
"""

import errno
import fcntl
import json
import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path
from typing import Self

from pipeline.errors import UserError
from pipeline.store.artifact import report_full_disk

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
POLL_S = 0.5
MAX_LINE_BYTES = 4096


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock."""

    host: str
    pid: int
    task: str
    """The owner's task, e.g. `train en-de base`."""
    since_s: float
    """Seconds since 1970."""

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.since_s))
        return f"pid {self.pid} on host {self.host} since {since}"

    @classmethod
    def here(cls, task: str) -> Self:
        """Returns this process as an owner."""
        return cls(socket.gethostname(), os.getpid(), task, time.time())

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Parses the first line of a lock; an unreadable one gives an unknown owner."""
        try:
            return cls(**json.loads(text.partition(b"\n")[0]))
        except (ValueError, TypeError):
            return cls("unknown", 0, "something", time.time())

    def written(self) -> bytes:
        """The text that `read` parses."""
        return json.dumps(asdict(self)).encode()


class Lock(ABC):
    """The lock on building an artifact. Leaving the `with` block releases it if it was taken."""

    line = b""
    """The lock's content while we hold it, unique to this owner; lets other processes check that we still do."""

    @abstractmethod
    def names(self, line: bytes) -> bool:
        """Whether the lock's owner wrote `line`; does not change the lock."""

    @abstractmethod
    def take(self) -> Owner | None:
        """Takes the lock if it is free, else returns its owner. Does not block."""

    @abstractmethod
    def wait(self) -> None:
        """Blocks until the lock is free; another process may take it before the caller does."""

    @abstractmethod
    def is_ours(self) -> bool:
        """Whether we took the lock and still hold it."""

    @abstractmethod
    def release(self) -> None:
        """Releases the lock; no-op if we do not hold it."""

    def take_in_turn(self) -> None:
        """Blocks until it has taken the lock."""
        while self.take():
            self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()


class FileLock(Lock):
    """The lock on building the folder or file `target`."""

    def __init__(self, target: Path, task: str) -> None:
        self.path = target.parent / ".locks" / f"{target.name}.lock"
        self._target, self._task = target, task
        self._file: FileIO | None = None
        """Closed on release or garbage collection, so a task cancelled at any point leaves no lock behind."""

    def names(self, line: bytes) -> bool:
        """See `Lock.names`."""
        try:
            return self.path.read_bytes() == line
        except FileNotFoundError:
            return False

    def take(self) -> Owner | None:
        """See `Lock.take`. Raises UserError if the disk is full."""
        # Guarded, so that nobody opens a file that its owner is about to remove.
        with report_full_disk(self._target), guarded(self.path.parent):
            file = FileIO(self.path, "r+", opener=lambda path, flags: os.open(path, flags | os.O_CREAT, 0o666))
            try:
                _flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB, self.path)
                _flock(file.fileno(), fcntl.LOCK_EX, self.path)  # waits for those who look (`holder`), for microseconds
                self.line = Owner.here(self._task).written()
                file.truncate(0)
                os.pwrite(file.fileno(), self.line, 0)
                self._file = file
            except BlockingIOError:
                return Owner.read(file.read(MAX_LINE_BYTES))
            finally:
                if self._file is not file:
                    file.close()
        return None

    def wait(self) -> None:
        """See `Lock.wait`."""
        while holder(self.path):
            time.sleep(POLL_S)

    def is_ours(self) -> bool:
        """See `Lock.is_ours`. Tries a write, which fails if a file server has expired our lock."""
        if self._file is None:
            return False
        try:
            if not self.names(self.line):
                return False
            os.pwrite(self._file.fileno(), self.line, 0)
            os.fsync(self._file.fileno())
            return os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except OSError:
            return False

    def release(self) -> None:
        """See `Lock.release`."""
        if self._file is not None:
            with guarded(self.path.parent), self._file:
                if self.is_ours():
                    self.path.unlink()
            self._file = None


def holder(path: Path) -> Owner | None:
    """Returns the living owner of the lock file `path`, or None."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        try:
            _flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB, path)
        except BlockingIOError:
            return Owner.read(file.read())
    return None


@contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """Runs the body, which must be short, in one process at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "guard").open("a") as guard:
        _flock(guard.fileno(), fcntl.LOCK_EX, folder / "guard")
        yield


def _flock(descriptor: int, operation: int, path: Path) -> None:
    """Calls fcntl.flock on the open file `path`. Raises UserError if the file system has no locks."""
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        raise UserError(
            f"{path}: this file system has no file locks ({error.strerror}); choose another folder, or mount it with "
            "locks"
        ) from None
