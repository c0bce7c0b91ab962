"""A store in a bucket, for machines that share no disk: each keeps copies of what it uses in a folder of its own.

    store = ObjectStore.at("s3://bucket/aiayn")

An artifact is `store/<name>/<attempt>/` with all its files, and `store/<name>/published.json`, written last and only if
it is not there yet, which says which attempt counts. So nobody sees half an artifact, and of two who made the same one,
only the first has published it. What a training keeps on its way is in `store/.making-<name>/`.

The copies are a LocalStore in `$AIAYN_CACHE`, by default `~/.cache/aiayn`, where reports, names and MLflow's files are,
too. A copy is checked against its manifest before it is used, and fetched once a machine.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.store.artifact import MAKING, MANIFEST, Artifact
from pipeline.store.bucket import SCHEMES, Bucket
from pipeline.store.bucket_locks import BucketLock
from pipeline.store.bucket_scratch import BucketScratch
from pipeline.store.locks import FileLock, Lock, machine
from pipeline.store.scratch import Scratch
from pipeline.store.store import LocalStore

PUBLISHED = "published.json"
OUTLINE = ".outline"
"""The file that marks a folder which has only what tells of an artifact."""
SMALL_BYTES = 100_000
_found: set[tuple[str, str]] = set()
"""The artifacts that this process has found published, by URI and name: they do not change."""
_checked: set[tuple[str, str]] = set()
"""The copies that this process has checked, by folder and manifest."""


@dataclass(frozen=True)
class ObjectStore(LocalStore):
    """Artifacts in a bucket, with copies below `root`. Pickled, it is only its URI: `root` differs by machine."""

    uri: str = ""

    @classmethod
    def at(cls, uri: str) -> "ObjectStore":
        """Returns the store at a URI, with its copies in this machine's cache."""
        uri = uri.rstrip("/")
        default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "aiayn")
        service = os.environ.get("AWS_ENDPOINT_URL", "")
        digest = hashlib.sha256(f"{service} {uri}".encode()).hexdigest()[:8]
        name = f"{re.sub(r'[^A-Za-z0-9.]+', '-', uri)}-{digest}"
        return cls(Path(os.environ.get("AIAYN_CACHE") or default).absolute() / name, uri)

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStore.at, (self.uri,)

    @property
    def bucket(self) -> Bucket:
        """The objects beneath."""
        return Bucket(self.uri)

    @property
    def is_shared(self) -> bool:
        """See `Store.is_shared`."""
        return False

    @property
    def shown(self) -> str:
        """See `Store.shown`."""
        return self.uri

    def check(self) -> None:
        """See `Store.check`."""
        self.bucket.check()
        super().check()

    def find(self, name: str) -> Path | None:
        """See `Store.find`."""
        if (self.uri, name) not in _found:
            if not self.bucket.exists(f"store/{name}/{PUBLISHED}"):
                return None
            _found.add((self.uri, name))
        return self.folder(name)

    def fetch(self, name: str) -> Path:
        """See `Store.fetch`. Raises UserError if the artifact is gone, or damaged in the bucket."""
        published = self._published(name)
        if published is None:
            _found.discard((self.uri, name))
            raise UserError(f"{self.uri}/store/{name} is no longer there; run the same command again")
        folder = self.folder(name)
        if self._is_copy(folder, published):
            return folder
        with FileLock(folder, f"fetch {name}") as lock:
            lock.take_in_turn()
            if not self._is_copy(folder, published):
                aside = self._download(name, published, published["files"])
                if damage := Artifact(aside).damage():
                    shutil.rmtree(aside)
                    place = f"{self.uri}/store/{name}"
                    raise UserError(
                        f"{place}/{published['attempt']} is damaged: {damage}; remove {place} to make it again"
                    )
                shutil.rmtree(folder, ignore_errors=True)  # what is not, or no longer, a copy
                os.rename(aside, folder)
        return folder

    def outline(self, name: str) -> None:
        """See `Store.outline`. What is then here of the artifact counts as no copy of it."""
        folder, published = self.folder(name), self._published(name)
        if published is None or (folder / MANIFEST).is_file():
            return
        small = [file for file, bytes_ in published["files"].items() if bytes_ <= SMALL_BYTES]
        with FileLock(folder, f"outline {name}") as lock:
            lock.take_in_turn()
            if not folder.exists():
                aside = self._download(name, published, small)
                (aside / OUTLINE).touch()
                os.rename(aside, folder)

    def has(self, name: str) -> bool:
        """See `LocalStore.has`."""
        return super().has(name) and not (self.folder(name) / OUTLINE).exists()

    def damage(self, name: str) -> str | None:
        """See `Store.damage`. The service checks its own objects; here it is seen that all are there, in full."""
        published = self._published(name)
        if published is None:
            return f"{PUBLISHED} is missing"
        place = f"store/{name}/{published['attempt']}"
        there = self.bucket.sizes_bytes(place)
        if MANIFEST not in there:
            return f"{MANIFEST} is missing"
        for file, bytes_ in published["files"].items():
            if file not in there:
                return f"{file} is missing"
            if there[file] != bytes_:
                return f"{file} has {there[file]} bytes, not the {bytes_} that were published"
        return None

    def remove(self, name: str) -> None:
        """See `Store.remove`. From the first step on nobody finds it."""
        _found.discard((self.uri, name))
        self.bucket.remove([f"store/{name}/{PUBLISHED}"])
        self.bucket.remove_folder(f"store/{name}")
        shutil.rmtree(self.folder(name), ignore_errors=True)

    def lock(self, name: str, task: str) -> Lock:
        """See `Store.lock`."""
        return BucketLock(self.bucket, f"store/{name}", task)

    def shared_scratch(self, name: str) -> Scratch:
        """See `Store.shared_scratch`."""
        return BucketScratch(self.scratch(name), self, name, self.bucket, f"store/{MAKING}{name}", machine())

    def working_folder(self, name: str) -> Path:
        """Returns the folder on this machine for the unfinished files of an artifact that another machine makes."""
        host = re.sub(r"[^A-Za-z0-9]+", "-", machine())[:40]
        return self.folder(f".working-{host}-{name}")

    def peek(self, name: str, file: str) -> str | None:
        """See `Store.peek`."""
        for path in (self.folder(name) / file, self.scratch(name) / file):
            if path.is_file():
                return path.read_text(encoding="utf-8")
        published = self._published(name)
        place = f"{name}/{published['attempt']}" if published else f"{MAKING}{name}"
        stored = self.bucket.read(f"store/{place}/{file}")
        return stored.data.decode() if stored else None

    def _published(self, name: str) -> dict[str, Any] | None:
        """Returns what was said when the artifact was published: the attempt, its manifest's hash and its files."""
        stored = self.bucket.read(f"store/{name}/{PUBLISHED}")
        published: dict[str, Any] | None = json.loads(stored.data) if stored else None
        return published

    def _make_room(self, name: str) -> None:
        """Removes a copy of what has been removed from the bucket."""
        shutil.rmtree(self.folder(name), ignore_errors=True)

    def _deliver(self, name: str, finished: Path) -> None:
        """Copies the files of an artifact to the bucket and publishes them. Raises UserError if it is late."""
        attempt = secrets.token_hex(8)
        files = {path.relative_to(finished).as_posix(): path for path in sorted(finished.rglob("*")) if path.is_file()}
        place = f"store/{name}/{attempt}"
        manifest = Artifact(finished).manifest
        published = {
            "attempt": attempt,
            "sha256": manifest["sha256"],
            "files": {file: described["bytes"] for file, described in manifest["files"].items()},
        }
        try:
            self.bucket.upload_files({f"{place}/{file}": path for file, path in files.items()})
            first = self.bucket.create(f"store/{name}/{PUBLISHED}", json.dumps(published).encode())
        except BaseException:
            self.bucket.remove([f"{place}/{file}" for file in files])
            raise
        if not first:
            self.bucket.remove([f"{place}/{file}" for file in files])
            raise UserError(f"{name} was published by another command meanwhile; run the same command again")
        self.bucket.remove_folder(f"store/{MAKING}{name}")

    def _download(self, name: str, published: dict[str, Any], files: Iterable[str]) -> Path:
        """Copies the manifest and files of an artifact to a folder aside, which it returns."""
        aside, place = self.folder(f".fetching-{name}"), f"store/{name}/{published['attempt']}"
        shutil.rmtree(aside, ignore_errors=True)  # left by a killed process
        self.bucket.download_files({f"{place}/{file}": aside / file for file in [MANIFEST, *files]})
        return aside

    def _is_copy(self, folder: Path, published: dict[str, Any]) -> bool:
        """Says whether a folder holds what was published, intact."""
        checked = (str(folder), published["sha256"])
        if checked in _checked and (folder / MANIFEST).is_file():
            return True
        artifact = Artifact(folder)
        if not (folder / MANIFEST).is_file() or artifact.damage() or artifact.manifest["sha256"] != published["sha256"]:
            return False
        _checked.add(checked)
        return True


def store_at(where: str | Path) -> LocalStore:
    """Returns the store at a folder or a URI (`store_named`), which can be used.

    Raises BucketError where a bucket does not answer or does not let us in.
    """
    store = store_named(where)
    store.check()
    return store


def store_named(where: str | Path) -> LocalStore:
    """Returns the store at a folder or a URI (s3://, gs://, az://, file://). Raises UserError for any other URI."""
    text = str(where)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return LocalStore(Path(text).absolute())
    if scheme == "file":
        return LocalStore(Path("/" + rest.lstrip("/")))
    if scheme not in SCHEMES or not rest.strip("/"):
        known = ", ".join(f"{scheme}://" for scheme in (*SCHEMES, "file"))
        raise UserError(f"--store {text}: give a folder, or a URI that begins with {known} and names one")
    return ObjectStore.at(text)
