"""The store, which finds, publishes and locks artifacts by name.

    store = LocalStore(Path("runs"))
    store.find("cleaning-0123456789abcdef")      # its folder, or None if it is not published

The engine and the commands access artifacts only through these calls, so another kind of storage only takes another
subclass. A name may also be an absolute path: single stages publish wherever their user says.
"""

import os
import secrets
import shutil
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.store.artifact import Artifact, Made, making_folder, publish
from pipeline.store.locks import FileLock, Lock, Owner
from pipeline.store.scratch import Scratch


class Store(ABC):
    """A place to keep artifacts. Instances are pickled with the tasks that use them."""

    @property
    @abstractmethod
    def is_shared(self) -> bool:
        """Whether the folders are the same on all nodes."""

    @property
    @abstractmethod
    def shown(self) -> str:
        """The store as its user named it."""

    @abstractmethod
    def check(self) -> None:
        """Raises UserError if nothing can be stored here."""

    @abstractmethod
    def find(self, name: str) -> Path | None:
        """Returns the folder of a published artifact, or None; its files may be elsewhere until `fetch` is called."""

    @abstractmethod
    def fetch(self, name: str) -> Path:
        """Returns a folder on this machine with the files of a published artifact."""

    @abstractmethod
    def outline(self, name: str) -> None:
        """Brings what tells of a published artifact, its manifest and its small files, to this machine."""

    @abstractmethod
    def scratch(self, name: str) -> Path:
        """Returns the folder on this machine in which an artifact is made until it is published."""

    @abstractmethod
    def publish(
        self,
        name: str,
        make: Callable[[Path], Made],
        manifest: dict[str, Any],
        *,
        resume: bool = False,
        ours: Callable[[], bool],
    ) -> Made:
        """Makes an artifact in its scratch folder and publishes it as a whole (`pipeline.store.artifact.publish`)."""

    @abstractmethod
    def damage(self, name: str) -> str | None:
        """Returns what is wrong with the files of a published artifact, None if nothing is."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Removes a published artifact, typically a damaged one."""

    @abstractmethod
    def lock(self, name: str, task: str) -> Lock:
        """Returns the lock on making an artifact; `task` tells others what it is held for."""

    @abstractmethod
    def wait_for_lock(self, name: str, owner: Owner) -> None:
        """Waits until `owner` no longer holds the lock on an artifact, or is dead."""

    @abstractmethod
    def owner(self, name: str) -> Owner | None:
        """Returns the living process that holds the lock `name`, None if there is none."""

    @abstractmethod
    def shared_scratch(self, name: str) -> Scratch:
        """Returns the folder in which an artifact is made, for processes on whatever nodes."""

    @abstractmethod
    def peek(self, name: str, file: str) -> str | None:
        """Returns the text of a file of an artifact, published or being made, as far as it is known; None if not."""

    @abstractmethod
    def workspace(self, kind: str) -> AbstractContextManager[Path]:
        """Yields the path of a folder for this process alone; it does not exist yet and is removed after the body."""


@dataclass(frozen=True)
class LocalStore(Store):
    """A store on a file system that all nodes share; on a single machine, its disk."""

    root: Path
    """The folder given by `--store`. Artifacts are in its subfolder `store/`, with MLflow's files next to it."""

    @property
    def is_shared(self) -> bool:
        """See `Store.is_shared`."""
        return True

    @property
    def shown(self) -> str:
        """See `Store.shown`."""
        return str(self.root)

    def check(self) -> None:
        """See `Store.check`. A folder that cannot be written to is told by the first who writes."""
        if self.root.is_file():
            raise UserError(f"--store {self.root} is a file; name a folder")

    @property
    def artifacts(self) -> Path:
        """The folder that holds the artifacts."""
        return self.root / "store"

    def folder(self, name: str) -> Path:
        """Returns the folder in which an artifact is or will be published."""
        return self.artifacts / name

    def find(self, name: str) -> Path | None:
        """See `Store.find`."""
        folder = self.folder(name)
        return folder if folder.is_dir() else None

    def fetch(self, name: str) -> Path:
        """See `Store.fetch`. The files are already on this machine."""
        return self.folder(name)

    def outline(self, name: str) -> None:
        """See `Store.outline`. Everything is on this machine."""

    def has(self, name: str) -> bool:
        """Returns whether all files of an artifact are on this machine."""
        return self.folder(name).is_dir()

    def scratch(self, name: str) -> Path:
        """See `Store.scratch`."""
        return making_folder(self.folder(name))

    def publish(
        self,
        name: str,
        make: Callable[[Path], Made],
        manifest: dict[str, Any],
        *,
        resume: bool = False,
        ours: Callable[[], bool],
    ) -> Made:
        """See `Store.publish`. A single rename publishes the artifact here."""
        self._make_room(name)
        return publish(self.folder(name), make, manifest, resume, ours, partial(self._deliver, name))

    def _make_room(self, name: str) -> None:
        """Clears the place of an artifact that is about to be made; here an artifact in it is never in the way."""

    def _deliver(self, name: str, finished: Path) -> None:
        """Takes a finished artifact to where it is published, unless the rename does that."""

    def damage(self, name: str) -> str | None:
        """See `Store.damage`. It reads all files."""
        return Artifact(self.folder(name)).damage()

    def remove(self, name: str) -> None:
        """See `Store.remove`."""
        shutil.rmtree(self.folder(name))

    def lock(self, name: str, task: str) -> Lock:
        """See `Store.lock`."""
        return FileLock(self.folder(name), task)

    def wait_for_lock(self, name: str, owner: Owner) -> None:
        """See `Store.wait_for_lock`."""
        self.lock(name, "").wait_for(owner)

    def owner(self, name: str) -> Owner | None:
        """See `Store.owner`."""
        return self.lock(name, "").holder()

    def shared_scratch(self, name: str) -> Scratch:
        """See `Store.shared_scratch`."""
        return Scratch(self.scratch(name))

    def peek(self, name: str, file: str) -> str | None:
        """See `Store.peek`."""
        for folder in (self.folder(name), self.scratch(name)):
            with suppress(OSError):
                return (folder / file).read_text(encoding="utf-8")
        return None

    @contextmanager
    def workspace(self, kind: str) -> Iterator[Path]:
        """See `Store.workspace`. Leftovers of killed processes are removed first."""
        self.artifacts.mkdir(parents=True, exist_ok=True)
        for leftover in self.artifacts.glob(f".{kind}-*"):
            with FileLock(leftover, kind) as lock:
                if lock.take() is None:
                    shutil.rmtree(leftover, ignore_errors=True)
        folder = self.artifacts / f".{kind}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        with FileLock(folder, kind) as lock:
            lock.take()
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
