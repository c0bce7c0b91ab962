"""The store: finds, publishes and locks artifacts by name.

    store = Store(Path("runs"))                     # or Store.at("s3://bucket/aiayn")
    store.find("vocabulary-0123456789abcdef")         # its folder, or None if it is not published

A store is a folder. Without a shared disk, it is a folder on each machine, in `$AIAYN_CACHE` (default
`~/.cache/aiayn`), synchronised with a bucket (`pipeline.store.bucket_artifacts`): a machine downloads the files that
its processes need, each once, and checks them against the manifest.

A name may also be an absolute path, since single stages publish to any folder that the user chooses.
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
from pipeline.store.artifact import MANIFEST, Artifact, ArtifactT, build_folder, publish, set_aside
from pipeline.store.bucket import SCHEME, Bucket
from pipeline.store.bucket_artifacts import BucketArtifacts
from pipeline.store.bucket_locks import BucketLock
from pipeline.store.hashes import STORE
from pipeline.store.locks import FileLock, Lock
from pipeline.store.scratch import BUILD_PREFIX, LockLostError, Scratch, Written

_seen: set[tuple[str, str]] = set()
"""Artifacts that this process has found published in buckets, by URI and name. They never change."""


@dataclass(frozen=True)
class Store:
    """A folder of artifacts or, with a `uri`, of copies from a bucket. Picklable."""

    root: Path
    """Artifacts are in its subfolder `store/`, MLflow's files next to it."""
    uri: str = ""
    """Empty: all nodes share the folder. Else each has its own."""

    @classmethod
    def at(cls, where: str | Path) -> Self:
        """Returns the store for a `--store` value: a folder or a URI (s3://, file://).

        Raises UserError for any other URI.
        """
        text = str(where)
        if not text:
            raise UserError("--store '': name a folder")
        scheme, separator, rest = text.partition("://")
        if not separator:
            if re.match(r"[a-z0-9+]{2,}:/", text):  # a slash was forgotten
                raise UserError(
                    f"--store {text}: a URI has two slashes; write {text.replace(':/', '://', 1)}, or ./{text}"
                )
            return cls(Path(text).expanduser().absolute())  # no shell expands `--store=~/runs`
        if scheme == "file":
            return cls(Path("/" + unquote(rest).lstrip("/")))
        if scheme != SCHEME or not rest.strip("/"):
            raise UserError(f"--store {text}: give a folder, or a URI that begins with s3:// or file:// and names one")
        if "@" in rest.partition("/")[0]:  # not printed
            raise UserError(f"--store {scheme}://...@...: leave out the credentials; set them in the environment")
        uri = text.rstrip("/")
        service = os.environ.get("AWS_ENDPOINT_URL", "")
        digest = hashlib.sha256(f"{service} {uri}".encode()).hexdigest()[:8]
        return cls(cache_folder() / f"{re.sub(r'[^A-Za-z0-9.]+', '-', uri)}-{digest}", uri)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles a bucket's store by its URI, since the folder differs between machines."""
        return (Store.at, (self.uri,)) if self.uri else (Store, (self.root,))

    def checked(self) -> Self:
        """Returns itself. Raises UserError if nothing can be stored here; a folder may still be read-only."""
        if self.uri:
            self.bucket.check()
        if self.root.is_file():
            raise UserError(f"--store {self.root} is a file; name a folder")
        return self

    def as_folder(self) -> Self:
        """Returns itself. Raises UserError if it is in a bucket, since only copies are here."""
        if self.uri:
            raise UserError(f"--store {self.uri}: only folders can be cleaned; this machine's is {self.root}")
        return self

    def __str__(self) -> str:
        """The store as the user named it."""
        return self.uri or str(self.root)

    @property
    def bucket(self) -> Bucket:
        """The bucket; requires a `uri`."""
        return Bucket(self.uri)

    @property
    def remote(self) -> BucketArtifacts | None:
        """The bucket's artifacts, or None if all nodes share the folder."""
        return BucketArtifacts(self.bucket) if self.uri else None

    @property
    def artifacts(self) -> Path:
        """The folder of the artifacts."""
        return self.root / STORE

    def folder(self, name: str) -> Path:
        """Returns the folder of an artifact, published or not."""
        return self.artifacts / name

    def scratch(self, name: str) -> Path:
        """Returns the folder on this machine in which an artifact is built."""
        return build_folder(self.folder(name))

    def shared_scratch(self, name: str, lock: Lock | None = None) -> Scratch:
        """Returns an artifact's build folder for processes on any node, valid while the caller holds its `lock`."""
        is_ours = partial(self._is_held_by, name, lock.line) if lock else None
        return Scratch(self.scratch(name), store=self if self.uri else None, is_ours=is_ours)

    def _is_held_by(self, name: str, line: bytes) -> bool:
        return self.lock(name, "").names(line)

    def find(self, name: str) -> Path | None:
        """Returns a published artifact's folder, or None; its files may need `fetch` first."""
        folder, key = self.folder(name), (self.uri, name)
        if not self.remote:
            return folder if folder.is_dir() else None
        if key not in _seen and self.remote.published(name):
            _seen.add(key)
        return folder if key in _seen else None

    def fetch(self, name: str, parts: Iterable[str] | None = None) -> Path:
        """Downloads the files of a published artifact, or only `parts`; returns their folder on this machine.

        A part is a file, a folder or a pattern (`fnmatch`). Raises UserError if the artifact is gone from the bucket or
        a file is damaged there.
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
        """Whether an artifact's folder has all its files, now or once it is published."""
        artifact = Artifact(self.folder(name))
        if not self.remote:
            return True
        if not (artifact.folder / MANIFEST).is_file():
            return False
        return all((artifact.folder / file).is_file() for file in artifact.manifest["files"])

    def publish(
        self,
        name: str,
        build: Callable[[Path], ArtifactT],
        manifest: dict[str, Any],
        *,
        resume: bool = False,
        holds_lock: Callable[[], bool],
        added: Mapping[str, Written] = MappingProxyType({}),
    ) -> ArtifactT:
        """Builds an artifact in its scratch folder and publishes it as a whole (`pipeline.store.artifact.publish`).

        `added` holds the files written by tasks (`Context.add`) once `build` returns. With `resume`, all files are
        synced to disk.
        """
        folder = self.folder(name)
        if not holds_lock():
            raise LockLostError.of(folder)
        if not self.remote:
            return publish(folder, build, manifest, resume, holds_lock, None, resume, added)
        if folder.exists():
            set_aside(folder)  # perhaps the last copy of an artifact that the bucket has lost
        if not resume:
            self.bucket.remove_folder(f"store/{BUILD_PREFIX}{name}")  # left by a killed process
        deliver = partial(self.remote.upload, name, added)
        with self.in_use(self.scratch(name)):
            return publish(folder, build, manifest, resume, holds_lock, deliver, resume, added)

    def damage(self, name: str) -> str | None:
        """Describes a published artifact's damage, or returns None. In a shared folder, reads its files."""
        return self.remote.damage(name) if self.remote else Artifact(self.folder(name)).damage()

    def set_aside(self, name: str) -> None:
        """Unpublishes a damaged artifact by moving its folder; nothing is deleted."""
        if self.remote:
            _seen.discard((self.uri, name))
            self.remote.set_aside(name)
        if self.folder(name).exists():
            set_aside(self.folder(name))

    def reopen(self, name: str) -> None:
        """Unpublishes a damaged artifact by turning it into its build folder, from which its stage resumes."""
        folder, building = self.folder(name), self.scratch(name)
        if building.exists():
            set_aside(building)
        if self.remote:
            _seen.discard((self.uri, name))
            self.remote.reopen(name)
            if folder.exists():  # the bucket's files count, and are downloaded again
                set_aside(folder)
        else:
            os.rename(folder, building)

    def lock(self, name: str, task: str) -> Lock:
        """Returns the lock on building an artifact; `task` describes it to others."""
        return BucketLock(self.bucket, f"store/{name}", task) if self.uri else FileLock(self.folder(name), task)

    def peek(self, name: str, file: str) -> str | None:
        """Returns the text of an artifact's file, published or being built, if available, else None."""
        for folder in (self.folder(name), self.scratch(name)):
            with suppress(OSError):
                return (folder / file).read_text(encoding="utf-8", errors="replace")
        return self.remote.peek(name, file) if self.remote else None

    @contextmanager
    def workspace(self, kind: str) -> Iterator[Path]:
        """Yields the path of a private folder, which does not exist yet and is removed after the body.

        First removes leftovers of killed processes.
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
        """Keeps `aiayn clean` from deleting a folder of this machine during the body.

        In a shared folder the artifact's own lock does so; with a bucket, that lock is in the bucket.
        """
        with FileLock(folder, "a copy") as lock:
            lock.take()  # fails harmlessly if another process here has it
            yield
