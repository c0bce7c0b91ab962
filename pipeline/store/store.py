"""The store: artifacts found, published and locked by name.

    store = LocalStore(Path("runs"))
    store.find("cleaning-0123456789abcdef")      # its folder, None where it is not published

The engine and the commands reach artifacts through these calls alone, so that another kind of storage is one more
subclass. An absolute path stands for a name too: single stages publish where their user says.
"""

import json
import os
import secrets
import shutil
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.store.artifact import Made, making_folder, publish
from pipeline.store.locks import Lock, Owner, wait_for


class Store(ABC):
    """Where artifacts are kept. Instances are pickled with the tasks that use them."""

    @abstractmethod
    def find(self, name: str) -> Path | None:
        """The folder of a published artifact, None where there is none; its files may be elsewhere until `fetch`."""

    @abstractmethod
    def fetch(self, name: str) -> Path:
        """A folder on this machine with the files of a published artifact."""

    @abstractmethod
    def scratch(self, name: str) -> Path:
        """The folder on this machine in which an artifact is being made, as long as it is not published."""

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
        """Makes an artifact in its scratch folder and publishes it whole (`pipeline.store.artifact.publish`)."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Removes a published artifact, as is done with a damaged one."""

    @abstractmethod
    def lock(self, name: str, task: str) -> Lock:
        """The lock on making an artifact; `task` tells others what it is held for."""

    @abstractmethod
    def wait_for_lock(self, name: str, owner: Owner) -> None:
        """Returns once the lock on an artifact is no longer that owner's, or the owner is dead."""

    @abstractmethod
    def read_record(self, name: str) -> Any:
        """A small JSON value kept beside the artifacts, None where there is none or it cannot be read."""

    @abstractmethod
    def write_record(self, name: str, value: Any) -> None:
        """Keeps a small JSON value, in place of an earlier one of that name."""

    @abstractmethod
    def workspace(self, kind: str) -> AbstractContextManager[Path]:
        """A folder for this process alone, not yet made, and removed after the body."""


@dataclass(frozen=True)
class LocalStore(Store):
    """A store on a file system that all nodes share: on one machine, its disk."""

    root: Path
    """What `--store` names. Artifacts lie in its folder `store/`, MLflow's files beside that."""

    @property
    def artifacts(self) -> Path:
        """The folder that holds the artifacts."""
        return self.root / "store"

    def folder(self, name: str) -> Path:
        """Where an artifact is or will be published."""
        return self.artifacts / name

    def find(self, name: str) -> Path | None:
        """See `Store.find`."""
        folder = self.folder(name)
        return folder if folder.is_dir() else None

    def fetch(self, name: str) -> Path:
        """See `Store.fetch`: the files are here already."""
        return self.folder(name)

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
        """See `Store.publish`: by one rename."""
        return publish(self.folder(name), make, manifest, resume, ours)

    def remove(self, name: str) -> None:
        """See `Store.remove`."""
        shutil.rmtree(self.folder(name))

    def lock(self, name: str, task: str) -> Lock:
        """See `Store.lock`."""
        return Lock(self.folder(name), task)

    def wait_for_lock(self, name: str, owner: Owner) -> None:
        """See `Store.wait_for_lock`."""
        wait_for(self.lock(name, "").path, owner)

    def read_record(self, name: str) -> Any:
        """See `Store.read_record`."""
        try:
            return json.loads((self.artifacts / f"{name}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None

    def write_record(self, name: str, value: Any) -> None:
        """See `Store.write_record`."""
        path = self.artifacts / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps(value), encoding="utf-8")
        os.replace(aside, path)

    @contextmanager
    def workspace(self, kind: str) -> Iterator[Path]:
        """See `Store.workspace`. Those that killed processes left behind are removed first."""
        self.artifacts.mkdir(parents=True, exist_ok=True)
        for left in self.artifacts.glob(f".{kind}-*"):
            with Lock(left, kind) as lock:
                if lock.take() is None:
                    shutil.rmtree(left, ignore_errors=True)
        folder = self.artifacts / f".{kind}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        with Lock(folder, kind) as lock:
            lock.take()
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
