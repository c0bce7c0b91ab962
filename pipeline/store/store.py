"""The store: finds, publishes and locks artifacts by name.

    store = Store(Path("runs"))                     # or Store.at("s3://bucket/aiayn")
    store.find("vocabulary-0123456789abcdef")         # its folder, or None if it is not published

A store is a folder. Without a shared disk, it is a folder on each machine, in `$AIAYN_CACHE` (default
`~/.cache/aiayn`), mirrored by a bucket (`pipeline.store.mirror`): what a machine publishes it pushes, and what its
processes need it pulls, each artifact as a whole, once, and checked.

A name may also be an absolute path, since single stages publish to any folder that the user chooses.
"""

import hashlib
import math
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from pipeline.environment import cache_folder
from pipeline.errors import BucketError, LockLostError, UserError
from pipeline.store.artifact import MANIFEST, Artifact, ArtifactT, publish, read_manifest
from pipeline.store.bucket import SCHEME, Bucket
from pipeline.store.bucket_locks import BucketLock
from pipeline.store.folders import RECORDS_PREFIX, build_folder, set_aside
from pipeline.store.hashes import STORE
from pipeline.store.locks import FileLock, Lock
from pipeline.store.mirror import Mirror

RECORDS_BYTES = 10 << 20
"""Largest file of an artifact that is pulled for its records: manifests, metrics, translations; no weights."""
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
        """Returns the store of a `--store` value, folder or URI (s3://, file://). Raises UserError for another URI."""
        text = str(where)
        if not text:
            raise UserError("--store '': name a folder")
        scheme, separator, rest = text.partition("://")
        if not separator:
            if re.match(r"[a-z0-9+]{2,}:/", text):  # a slash was forgotten
                raise UserError(
                    f"--store {text}: a URI has two slashes; write {text.replace(':/', '://', 1)}, or ./{text}"
                )
            return cls(Path(os.path.expanduser(text)).absolute())  # no shell expands `--store=~/runs`
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

    def __str__(self) -> str:
        """The store as the user named it."""
        return self.uri or str(self.root)

    @property
    def bucket(self) -> Bucket:
        """The bucket; requires a `uri`."""
        return Bucket(self.uri)

    @property
    def mirror(self) -> Mirror | None:
        """The bucket's artifacts, or None if all nodes share the folder."""
        return Mirror(self.bucket) if self.uri else None

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

    def find(self, name: str) -> Path | None:
        """Returns a published artifact's folder, or None; one in a bucket may need `fetch` first."""
        folder, key = self.folder(name), (self.uri, name)
        if self.mirror:
            if key not in _seen and self.mirror.published(name):
                _seen.add(key)
            return folder if key in _seen else None
        if not folder.is_dir() and folder.parent.is_dir():
            # An NFS client remembers what an earlier look did not find, until the folder above is opened.
            os.close(os.open(folder.parent, os.O_RDONLY))
        return folder if folder.is_dir() else None

    def fetch(self, name: str, *, records: bool = False) -> Path:
        """Returns the folder on this machine of a published artifact, pulled from the bucket if it has none.

        `records` are enough for who shows an artifact: if it is not here, only small files are pulled, to a folder of
        their own. Raises UserError if it is gone from the bucket or damaged there.
        """
        folder = self.folder(name)
        if not self.mirror:
            return folder
        if not (published := self.mirror.published(name)):
            _seen.discard((self.uri, name))
            raise UserError(f"{self.uri}/store/{name} is no longer there; run the same command again")
        is_whole = not records or published.is_in(folder)
        folder = folder if is_whole else folder.with_name(f"{RECORDS_PREFIX}{name}")
        with FileLock(folder, f"fetch {name}") as lock:
            lock.take_in_turn()
            if not published.is_in(folder) or (is_whole and Artifact(folder).damage()):
                self.mirror.pull(name, published, folder, math.inf if is_whole else RECORDS_BYTES)
        return folder

    def manifest(self, name: str) -> dict[str, Any] | None:
        """Returns an artifact's manifest, or None if it is not published or not intact."""
        if self.find(name) is None:
            return None
        try:
            return self.mirror.manifest(name, self.folder(name)) if self.mirror else read_manifest(self.folder(name))
        except BucketError:  # it may be there
            raise
        except (UserError, OSError, ValueError, LookupError, TypeError):
            return None

    def names(self) -> list[str]:
        """Returns the names of all published artifacts."""
        if self.uri:
            return [name for name in self.bucket.folders("store") if not name.startswith(".") and self.find(name)]
        return sorted(path.parent.name for path in self.artifacts.glob(f"[!.]*/{MANIFEST}"))

    def publish(
        self,
        name: str,
        build: Callable[[Path], ArtifactT],
        manifest: dict[str, Any],
        *,
        resume: bool = False,
        flush: bool = False,
        holds_lock: Callable[[], bool],
    ) -> ArtifactT:
        """Builds and publishes an artifact (`artifact.publish`), then pushes it to the bucket, if there is one."""
        folder = self.folder(name)
        if not holds_lock():
            raise LockLostError.of(folder)
        if self.mirror and folder.exists():
            set_aside(folder)  # perhaps the last copy of an artifact that the bucket has lost
        with self.in_use(self.scratch(name)) if self.uri else nullcontext():
            artifact = publish(folder, build, manifest, resume, holds_lock, flush)
        if self.mirror:
            self.mirror.push(name, folder)
        return artifact

    def push_left(self, name: str) -> bool:
        """Pushes an artifact that a killed command published only here; returns whether there is one. Hold its lock."""
        if not (self.mirror and self.folder(name).is_dir() and Artifact(self.folder(name)).damage() is None):
            return False
        self.mirror.push(name, self.folder(name))
        return True

    def damage(self, name: str) -> str | None:
        """Describes a published artifact's damage, or returns None. In a shared folder, reads its files."""
        return self.mirror.damage(name) if self.mirror else Artifact(self.folder(name)).damage()

    def set_aside(self, name: str) -> None:
        """Unpublishes a damaged artifact by moving its folder; nothing is deleted."""
        if self.mirror:
            _seen.discard((self.uri, name))
            self.mirror.set_aside(name)
        if self.folder(name).exists():
            set_aside(self.folder(name))

    def reopen(self, name: str) -> None:
        """Unpublishes a damaged artifact by turning it into its build folder, from which its stage resumes."""
        folder, building = self.folder(name), self.scratch(name)
        if building.exists():
            set_aside(building)
        if self.mirror:
            _seen.discard((self.uri, name))
            self.mirror.reopen(name)
            if folder.exists():  # the bucket's files count, and are downloaded again
                set_aside(folder)
        else:
            os.rename(folder, building)

    def lock(self, name: str, task: str) -> Lock:
        """Returns the lock on building an artifact; `task` describes it to others."""
        return BucketLock(self.bucket, f"store/{name}", task) if self.uri else FileLock(self.folder(name), task)

    def is_held(self, name: str, line: bytes) -> bool:
        """Whether an artifact's lock has this content (`Lock.line`)."""
        return self.lock(name, "").names(line)

    def peek(self, name: str, file: str) -> str | None:
        """Returns the text of an artifact's file, published or being built, if available, else None."""
        for folder in (self.folder(name), self.scratch(name)):
            with suppress(OSError):
                return (folder / file).read_text(encoding="utf-8", errors="replace")
        return self.mirror.peek(name, file) if self.mirror else None

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
