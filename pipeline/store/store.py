"""The store, which finds, publishes and locks artifacts by name.

    store = Store(Path("runs"))                     # or Store.at("s3://bucket/aiayn")
    store.find("cleaning-0123456789abcdef")         # its folder, or None if it is not published

A store is a folder. Where the machines share no disk, it is one on each of them, in `$AIAYN_CACHE` (by default
`~/.cache/aiayn`), and artifacts come from and go to a bucket (`pipeline.store.bucket_artifacts`). A machine fetches
of an artifact what its processes ask for, each file once, and checks it against the manifest.

A name may also be an absolute path: single stages publish wherever their user says.
"""

import hashlib
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import unquote

from pipeline.environment import cache_folder
from pipeline.errors import UserError
from pipeline.store.artifact import MANIFEST, Artifact, Made, making_folder, publish, set_aside
from pipeline.store.bucket import SCHEMES, Bucket
from pipeline.store.bucket_artifacts import BucketArtifacts
from pipeline.store.bucket_locks import BucketLock
from pipeline.store.hashes import STORE
from pipeline.store.locks import FileLock, Lock
from pipeline.store.scratch import MAKING, LockLostError, Scratch, Written

_seen: set[tuple[str, str]] = set()
"""The artifacts that this process has found published in buckets, by URI and name: they do not change."""


@dataclass(frozen=True)
class Store:
    """A folder of artifacts; with a `uri`, of copies of what is in a bucket. Pickled with the tasks that use it."""

    root: Path
    """Artifacts are in its subfolder `store/`, with MLflow's files next to it."""
    uri: str = ""
    """Empty: all nodes share the folder."""

    @classmethod
    def at(cls, where: str | Path) -> Self:
        """Returns the store that `--store` names, a folder or a URI (s3://, gs://, az://, file://).

        Raises UserError for any other URI.
        """
        text = str(where)
        if not text:
            raise UserError("--store '': name a folder")
        scheme, separator, rest = text.partition("://")
        if not separator:
            return cls(Path(text).absolute())
        if scheme == "file":
            return cls(Path("/" + unquote(rest).lstrip("/")))
        if scheme not in SCHEMES or not rest.strip("/"):
            known = ", ".join(f"{scheme}://" for scheme in (*SCHEMES, "file"))
            raise UserError(f"--store {text}: give a folder, or a URI that begins with {known} and names one")
        uri = text.rstrip("/")
        service = os.environ.get("AWS_ENDPOINT_URL", "")
        digest = hashlib.sha256(f"{service} {uri}".encode()).hexdigest()[:8]
        return cls(cache_folder() / f"{re.sub(r'[^A-Za-z0-9.]+', '-', uri)}-{digest}", uri)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles a bucket's store as its URI, since the folder differs by machine."""
        return (Store.at, (self.uri,)) if self.uri else (Store, (self.root,))

    def checked(self) -> Self:
        """Returns itself. Raises UserError if nothing can be stored here; a folder may still refuse what is written."""
        if self.uri:
            self.bucket.check()
        if self.root.is_file():
            raise UserError(f"--store {self.root} is a file; name a folder")
        return self

    def as_folder(self) -> Self:
        """Returns itself. Raises UserError if it is in a bucket, of which there are only copies here."""
        if self.uri:
            raise UserError(
                f"--store {self.uri}: only folders can be cleaned; this machine's copies are in {self.root}"
            )
        return self

    @property
    def exists(self) -> bool:
        """Whether anything can have been stored here."""
        return bool(self.uri) or self.root.is_dir()

    @property
    def is_apart(self) -> bool:
        """Whether each node has a folder of its own."""
        return bool(self.uri)

    @property
    def shown(self) -> str:
        """The store as its user named it."""
        return self.uri or str(self.root)

    @property
    def bucket(self) -> Bucket:
        """The bucket; only where there is a `uri`."""
        return Bucket(self.uri)

    @property
    def remote(self) -> BucketArtifacts | None:
        """The artifacts of the bucket, None if all nodes share the folder."""
        return BucketArtifacts(self.bucket) if self.uri else None

    @property
    def artifacts(self) -> Path:
        """The folder that holds the artifacts."""
        return self.root / STORE

    def folder(self, name: str) -> Path:
        """Returns the folder in which an artifact is or will be published."""
        return self.artifacts / name

    def scratch(self, name: str) -> Path:
        """Returns the folder on this machine in which an artifact is made until it is published."""
        return making_folder(self.folder(name))

    def shared_scratch(self, name: str, lock: Lock | None = None) -> Scratch:
        """Returns the build folder of an artifact for processes on any node, as long as the caller holds its `lock`."""
        is_ours = partial(self._is_held_by, name, lock.line) if lock else None
        return Scratch(self.scratch(name), store=self if self.uri else None, is_ours=is_ours)

    def _is_held_by(self, name: str, line: bytes) -> bool:
        return self.lock(name, "").names(line)

    def find(self, name: str) -> Path | None:
        """Returns the folder of a published artifact, or None; its files may be elsewhere until `fetch` is called."""
        folder, key = self.folder(name), (self.uri, name)
        if not self.remote:
            return folder if folder.is_dir() else None
        if key not in _seen and self.remote.published(name):
            _seen.add(key)
        return folder if key in _seen else None

    def fetch(self, name: str, parts: Iterable[str] | None = None) -> Path:
        """Returns a folder on this machine with the files of a published artifact, or only with these parts of it.

        A part is a file, a folder or a pattern (`fnmatch`); the folder may have more. Raises UserError if the artifact
        is gone from the bucket, or what is fetched is damaged there.
        """
        folder = self.folder(name)
        if self.remote:
            published = self.remote.published(name)
            if published is None:
                _seen.discard((self.uri, name))
                raise UserError(f"{self.uri}/store/{name} is no longer there; run the same command again")
            self.remote.fetch(name, published, ["*"] if parts is None else parts, folder)
        return folder

    def has(self, name: str) -> bool:
        """Returns whether the folder of an artifact has, or will have once it is published, all its files."""
        artifact = Artifact(self.folder(name))
        if not self.remote:
            return True
        if not (artifact.folder / MANIFEST).is_file():
            return False
        return all((artifact.folder / file).is_file() for file in artifact.manifest["files"])

    def publish(
        self,
        name: str,
        make: Callable[[Path], Made],
        manifest: dict[str, Any],
        *,
        resume: bool = False,
        ours: Callable[[], bool],
        added: Mapping[str, Written] = MappingProxyType({}),
    ) -> Made:
        """Makes an artifact in its scratch folder and publishes it as a whole (`pipeline.store.artifact.publish`).

        `added` has the files that tasks wrote (`Context.add`) by the time that `make` returns. With `resume`, all files
        are flushed to the disk before this returns.
        """
        folder = self.folder(name)
        if not ours():
            raise LockLostError.of(folder)
        if not self.remote:
            return publish(folder, make, manifest, resume, ours, None, resume, added, remembers=True)
        if folder.exists():
            set_aside(folder)  # a copy, perhaps the last one, of what the bucket no longer has
        if not resume:
            self.bucket.remove_folder(f"store/{MAKING}{name}")  # left by a killed process
        deliver = partial(self.remote.upload, name, added)
        with self.in_use(self.scratch(name)):
            return publish(folder, make, manifest, resume, ours, deliver, resume, added, remembers=True)

    def damage(self, name: str) -> str | None:
        """Returns what is wrong with the files of a published artifact, None if nothing is; reads those of a folder."""
        return self.remote.damage(name) if self.remote else Artifact(self.folder(name)).damage()

    def set_aside(self, name: str) -> None:
        """Unpublishes a damaged artifact by moving its folder, so that nothing of it is lost."""
        if self.remote:
            _seen.discard((self.uri, name))
            self.remote.set_aside(name)
        if self.folder(name).exists():
            set_aside(self.folder(name))

    def reopen(self, name: str) -> None:
        """Unpublishes a damaged artifact by making its folder the build folder, from which its stage continues."""
        folder, making = self.folder(name), self.scratch(name)
        if making.exists():
            set_aside(making)
        if self.remote:
            _seen.discard((self.uri, name))
            self.remote.reopen(name)
            if folder.exists():  # what counts, and is brought here again, is in the bucket
                set_aside(folder)
        else:
            os.rename(folder, making)

    def lock(self, name: str, task: str) -> Lock:
        """Returns the lock on making an artifact; `task` tells others what it is held for."""
        return BucketLock(self.bucket, f"store/{name}", task) if self.uri else FileLock(self.folder(name), task)

    def peek(self, name: str, file: str) -> str | None:
        """Returns the text of a file of an artifact, published or being made, as far as it is known; None if not."""
        for folder in (self.folder(name), self.scratch(name)):
            with suppress(OSError):
                return (folder / file).read_text(encoding="utf-8", errors="replace")
        return self.remote.peek(name, file) if self.remote else None

    @contextmanager
    def workspace(self, kind: str) -> Iterator[Path]:
        """Yields the path of a folder for this process alone; it does not exist yet and is removed after the body.

        Leftovers of killed processes are removed first.
        """
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

    @contextmanager
    def in_use(self, folder: Path) -> Iterator[None]:
        """Keeps `aiayn clean` from deleting a folder of this machine while the body uses it.

        The lock that says so for a folder which all nodes share is, for the others, in the bucket.
        """
        with FileLock(folder, "a copy") as lock:
            lock.take()  # unless another process here has
            yield
