"""Locks on what is being made: one maker of a folder at a time, whichever process, Ray cluster or host it is in.

    with Lock(folder, "train en-de base") as lock:
        owner = lock.take()  # None: it is ours until the body ends; else who has it, and we may wait or go

A lock is the file `<parent>/.locks/<name>.json`, which names its owner; a thread of the owner renews the file's time of
change. It needs nothing but the file system that holds the folder. An owner is dead when its process is gone (on this
machine), or when the file has not been renewed for a minute (on another): the lock then goes to the next who asks.
"""

import fcntl
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Self

from pipeline.store.artifact import report_full_disk

HEARTBEAT_S = 5.0
DEAD_S = 60.0
"""An owner on another machine that has not renewed its lock for so long is dead."""
POLL_S = 0.5

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Owner:
    """Who has a lock."""

    host: str
    machine: str
    """Where the number of the process holds: host, its boot, and the PID namespace."""
    pid: int
    process_started: int | None
    """In the kernel's clock ticks, since a later process may have the same number; None where there is no /proc."""
    token: str
    task: str
    """What the lock is for, e.g. `train en-de base`."""
    since: float
    """Seconds since 1970."""

    def __str__(self) -> str:
        return f"pid {self.pid} on host {self.host} since {time.strftime('%H:%M', time.localtime(self.since))}"


class Lock:
    """The lock on making `target`. Leaving the `with` block releases it, if it was taken."""

    def __init__(self, target: Path, task: str) -> None:
        self.path = target.parent / ".locks" / f"{target.name}.json"
        self._target = target
        self._task, self._token = task, secrets.token_hex(8)
        self._released = threading.Event()
        self._heart = threading.Thread(target=self._beat, name=f"lock of {target.name}", daemon=True)

    def take(self) -> Owner | None:
        """Takes the lock, over from a dead owner if need be; where another has it, returns who. Never waits long.

        Raises UserError where the disk is full.
        """
        pid = os.getpid()
        _, process_started = _process(pid)
        ours = Owner(socket.gethostname(), _machine(), pid, process_started, self._token, self._task, time.time())
        with report_full_disk(self._target), guarded(self.path.parent) as now:
            if found := _read(self.path):
                owner, renewed = found
                if not _is_dead(owner, now - renewed):
                    return owner
                logger.warning(
                    "the lock on %s (%s) is taken over from %s, last heard of %.0f s ago",
                    self.path.stem,
                    owner.task,
                    owner,
                    now - renewed,
                )
            aside = self.path.with_suffix(f".{self._token}")
            try:
                aside.write_text(json.dumps(asdict(ours)), encoding="utf-8")
                os.replace(aside, self.path)
            except OSError:
                aside.unlink(missing_ok=True)
                raise
        self._heart.start()
        return None

    def is_ours(self) -> bool:
        """Whether we have taken it and nobody has taken it over."""
        found = _read(self.path)
        return found is not None and found[0].token == self._token

    def release(self) -> None:
        """Gives it up; nothing happens where we do not have it."""
        self._released.set()
        if self._heart.is_alive():
            self._heart.join()
        if self.is_ours():
            with guarded(self.path.parent):
                if self.is_ours():
                    self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    def _beat(self) -> None:
        while not self._released.wait(HEARTBEAT_S):
            with suppress(OSError):  # tried again
                if self.is_ours():
                    os.utime(self.path)


def wait_for(path: Path, owner: Owner) -> None:
    """Waits until the lock with the file `path` is no longer that owner's, or the owner is dead."""
    while (found := _read(path)) and found[0].token == owner.token:
        guard = path.parent / "guard"
        guard.touch()  # the file system's clock: those of hosts differ
        if _is_dead(owner, guard.stat().st_mtime - found[1]):
            return
        time.sleep(POLL_S)


@contextmanager
def guarded(folder: Path) -> Iterator[float]:
    """One process at a time is in the body, a short one. Yields the time now by the clock of the file system."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "guard").open("a") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        os.utime(guard.fileno())
        yield os.fstat(guard.fileno()).st_mtime


def _read(path: Path) -> tuple[Owner, float] | None:
    """A lock's owner and when it was renewed, None where nobody has it."""
    try:
        with path.open(encoding="utf-8") as file:  # opening brings what is cached of a network's file up to date
            text, renewed = file.read(), os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None
    try:
        return Owner(**json.loads(text)), renewed
    except (ValueError, TypeError):  # after a power failure
        return Owner("unknown", "", 0, None, "", "unknown", renewed), renewed


def _is_dead(owner: Owner, silent_s: float) -> bool:
    if owner.machine != _machine():
        return silent_s > DEAD_S
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # another user's
    alive, started = _process(owner.pid)
    return not alive or started not in (None, owner.process_started)


def _process(pid: int) -> tuple[bool, int | None]:
    """Of a process that is there: whether it is not just a zombie, and when it started; (True, None) if not told."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True, None
    state, *fields = told.rpartition(")")[2].split()  # behind the name
    return state not in "ZX", int(fields[18])


@cache
def _machine() -> str:
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)
