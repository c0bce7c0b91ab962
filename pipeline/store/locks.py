"""Locks that let only one process at a time make a folder, across processes, Ray clusters and hosts.

    with FileLock(folder, "train en-de base") as lock:
        owner = lock.take()  # None: we hold the lock until the body ends; otherwise, whoever holds it

A file lock is the file `<parent>/.locks/<name>.json`, which names its owner; a thread of the owner keeps updating the
file's modification time. Nothing is needed but the file system that holds the folder. An owner counts as dead when its
process is gone (on this machine) or when the lock has not been renewed for a minute (on another); the next process to
ask then gets the lock.
"""

import fcntl
import json
import logging
import os
import secrets
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Self

from pipeline.store.artifact import report_full_disk

HEARTBEAT_S = 5.0
DEAD_S = 60.0
"""An owner on another machine counts as dead once it has not renewed its lock for this long."""
POLL_S = 0.5

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock."""

    host: str
    machine: str
    """The scope in which `pid` is valid: the host, its boot ID and the PID namespace."""
    pid: int
    process_started: int | None
    """In the kernel's clock ticks, because a later process may get the same PID; None if there is no /proc."""
    token: str
    task: str
    """What the lock is held for, e.g. `train en-de base`."""
    since: float
    """Seconds since 1970."""

    def __str__(self) -> str:
        return f"pid {self.pid} on host {self.host} since {time.strftime('%H:%M', time.localtime(self.since))}"


class Lock(ABC):
    """The lock on making something. Leaving the `with` block releases the lock if it was taken."""

    def __init__(self, name: str, task: str) -> None:
        self.name, self._task, self._token = name, task, secrets.token_hex(8)
        self._released = threading.Event()
        self._heart = threading.Thread(target=self._beat, name=f"lock of {name}", daemon=True)

    @abstractmethod
    def take(self) -> Owner | None:
        """Takes the lock, from a dead owner if need be; returns the owner if another live process holds it.

        It does not wait for the lock.
        """

    @abstractmethod
    def is_ours(self) -> bool:
        """Returns whether we have taken the lock and nobody has taken it over since."""

    @abstractmethod
    def wait_for(self, owner: Owner) -> None:
        """Waits until `owner` no longer holds the lock, or is dead."""

    @abstractmethod
    def holder(self) -> Owner | None:
        """Returns the living process that holds the lock, None if there is none."""

    @abstractmethod
    def _renew(self) -> None:
        """Shows others that we live. May raise OSError; the next beat tries again."""

    @abstractmethod
    def _let_go(self) -> None:
        """Frees the lock for others if it is ours."""

    def take_in_turn(self) -> None:
        """Takes the lock as soon as its present owners have released it or are dead."""
        while owner := self.take():
            self.wait_for(owner)

    def release(self) -> None:
        """Releases the lock; does nothing if we do not hold it."""
        self._released.set()
        if self._heart.is_alive():
            self._heart.join()
        self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    def _ourselves(self) -> Owner:
        """Describes this process as the owner."""
        pid = os.getpid()
        _, process_started = _process(pid)
        return Owner(socket.gethostname(), machine(), pid, process_started, self._token, self._task, time.time())

    def _tell_takeover(self, owner: Owner, silent_s: float) -> None:
        message = "taking over the lock on %s (%s) from %s, last heard from %.0f s ago"
        logger.warning(message, self.name, owner.task, owner, silent_s)

    def _beat(self) -> None:
        while not self._released.wait(HEARTBEAT_S):
            with suppress(OSError):
                self._renew()


class FileLock(Lock):
    """The lock on making the folder or file `target`."""

    def __init__(self, target: Path, task: str) -> None:
        super().__init__(target.name, task)
        self.path = target.parent / ".locks" / f"{target.name}.json"
        self._target = target

    def take(self) -> Owner | None:
        """See `Lock.take`. Raises UserError if the disk is full."""
        ours = self._ourselves()
        with report_full_disk(self._target), guarded(self.path.parent) as now:
            if held := _read(self.path):
                owner, renewed = held
                if not is_dead(owner, now - renewed):
                    return owner
                self._tell_takeover(owner, now - renewed)
            temporary = self.path.with_suffix(f".{self._token}")
            try:
                temporary.write_text(json.dumps(asdict(ours)), encoding="utf-8")
                os.replace(temporary, self.path)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise
        self._heart.start()
        return None

    def is_ours(self) -> bool:
        """See `Lock.is_ours`."""
        held = _read(self.path)
        return held is not None and held[0].token == self._token

    def wait_for(self, owner: Owner) -> None:
        """See `Lock.wait_for`."""
        wait_for(self.path, owner)

    def holder(self) -> Owner | None:
        """See `Lock.holder`."""
        return holder(self.path)

    def _renew(self) -> None:
        if self.is_ours():
            os.utime(self.path)

    def _let_go(self) -> None:
        if self.is_ours():
            with guarded(self.path.parent):
                if self.is_ours():
                    self.path.unlink()


def wait_for(path: Path, owner: Owner) -> None:
    """Waits until `owner` no longer holds the lock in the file `path`, or is dead."""
    while (held := _read(path)) and held[0].token == owner.token:
        guard = path.parent / "guard"
        guard.touch()  # use the file system's clock, since the hosts' clocks differ
        if is_dead(owner, guard.stat().st_mtime - held[1]):
            return
        time.sleep(POLL_S)


def holder(path: Path) -> Owner | None:
    """Returns the living process that holds the lock in the file `path`, None if there is none."""
    held = _read(path)
    if held is None:
        return None
    owner, renewed = held
    now = time.time()
    with suppress(OSError):  # a file system that only lets us read
        guard = path.parent / "guard"
        guard.touch()  # use the file system's clock, since the hosts' clocks differ
        now = guard.stat().st_mtime
    return None if is_dead(owner, now - renewed) else owner


@contextmanager
def guarded(folder: Path) -> Iterator[float]:
    """Lets one process at a time run the body, which must be short. Yields the time by the file system's clock."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "guard").open("a") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        os.utime(guard.fileno())
        yield os.fstat(guard.fileno()).st_mtime


def _read(path: Path) -> tuple[Owner, float] | None:
    """Returns a lock's owner and the time of its last renewal, or None if nobody holds the lock."""
    try:
        with path.open(encoding="utf-8") as file:  # opening refreshes what a network file system has cached
            text, renewed = file.read(), os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None
    try:
        return Owner(**json.loads(text)), renewed
    except (ValueError, TypeError):  # a power failure may leave a broken file
        return Owner("unknown", "", 0, None, "", "unknown", renewed), renewed


def is_dead(owner: Owner, silent_s: float) -> bool:
    """Says whether an owner that last renewed its lock `silent_s` ago has died."""
    if owner.machine != machine():
        return silent_s > DEAD_S
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # another user's process
    alive, started = _process(owner.pid)
    return not alive or started not in (None, owner.process_started)


def _process(pid: int) -> tuple[bool, int | None]:
    """Returns whether an existing process is alive, not a zombie, and when it started; (True, None) without /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True, None
    state, *fields = stat.rpartition(")")[2].split()  # the fields after the command's name
    return state not in "ZX", int(fields[18])


@cache
def machine() -> str:
    """Returns the scope in which this process's PID is valid (`Owner.machine`)."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)
