"""Published artifacts in a bucket.

An artifact is `store/<name>/<attempt>/` with all its files, and `store/<name>/published.json`, written last and only if
it is not there yet, which says which attempt counts. So nobody sees half an artifact, and of two who made the same one,
only the first has published it. What a training keeps on its way is in `store/.making-<name>/`.
"""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

from pipeline.errors import UserError
from pipeline.store.artifact import MANIFEST, Artifact, read_manifest
from pipeline.store.bucket import AT_ONCE, Bucket
from pipeline.store.hashes import file_sha256, remember, stamp
from pipeline.store.locks import FileLock
from pipeline.store.scratch import MAKING, Written, aside_of

PUBLISHED = "published.json"


@dataclass(frozen=True)
class Published:
    """What is said of an artifact when it is published."""

    attempt: str
    sha256: str
    """That of its manifest."""
    files: Mapping[str, int]
    """Their sizes in bytes, without the manifest's."""


@dataclass(frozen=True)
class BucketArtifacts:
    """The artifacts of a bucket. All methods raise BucketError if it does not answer."""

    bucket: Bucket

    def published(self, name: str) -> Published | None:
        """Returns what is said of an artifact, None if it is not published."""
        stored = self.bucket.read(f"store/{name}/{PUBLISHED}")
        return Published(**json.loads(stored.data)) if stored else None

    def upload(self, name: str, added: Mapping[str, Written], folder: Path) -> None:
        """Publishes the files of a finished artifact: those in the folder, and those that tasks have `added`.

        Raises UserError if another process was faster.
        """
        manifest = Artifact(folder).manifest
        sizes_bytes = {file: described["bytes"] for file, described in manifest["files"].items()}
        published = Published(secrets.token_hex(8), manifest["sha256"], sizes_bytes)
        place = f"store/{name}/{published.attempt}"
        files = [f"{place}/{file}" for file in [*sizes_bytes, MANIFEST]]
        here = [*(file for file in sizes_bytes if file not in added), MANIFEST]
        try:
            self.bucket.copy(
                {f"store/{MAKING}{name}/{written.name}": f"{place}/{file}" for file, written in added.items()}
            )
            self.bucket.upload({f"{place}/{file}": folder / file for file in here})
        except BaseException:
            self.bucket.remove(files)  # not published, so no process reads them
            raise
        # If this raises, the write may have succeeded without an answer, so the files must stay.
        if not self.bucket.create(f"store/{name}/{PUBLISHED}", json.dumps(asdict(published)).encode()):
            self.bucket.remove(files)
            raise UserError(f"{name} was published by another command meanwhile; run the same command again")
        self.bucket.remove_folder(f"store/{MAKING}{name}")

    def fetch(self, name: str, published: Published, parts: Iterable[str], folder: Path) -> None:
        """Adds parts of an artifact to a copy, which may lack others: files, folders or patterns (`fnmatch`).

        Files that the copy has are left alone unless they are damaged. Each other one is brought once, however many
        processes of this machine ask for it, and has its name once it is checked. Raises UserError if one is damaged.
        """
        if not _is_copy(folder, published):
            with FileLock(folder, f"fetch {name}") as lock:
                lock.take_in_turn()
                if not _is_copy(folder, published):
                    self._begin_copy(name, published, folder)
        copy, parts = Artifact(folder), [*parts]
        listed = copy.manifest["files"]
        wanted = [file for file in listed if any(_is_in(file, part) for part in parts)]

        def bring(file: str) -> None:
            digest = hashlib.sha256(file.encode()).hexdigest()[:16]
            with FileLock(folder.with_name(f".fetching-{folder.name}-{digest}"), f"fetch {name}/{file}") as lock:
                lock.take_in_turn()
                if not any(copy.damages([file])):  # another process has brought it
                    return
                path = folder / file
                aside = path.with_name(f".fetching-{path.name}")
                self.bucket.download({f"store/{name}/{published.attempt}/{file}": aside})
                if file_sha256(aside) != listed[file]["sha256"]:
                    aside.unlink()
                    raise self._damaged(name, published, f"{file} does not match its sha256 in {MANIFEST}")
                os.replace(aside, path)

        if missing := [file for file, _ in copy.damages(wanted)]:
            with FileLock(folder, "a copy") as lock, ThreadPoolExecutor(AT_ONCE) as threads:
                lock.take()  # unless another process has: `aiayn clean` leaves a locked copy alone
                list(threads.map(bring, missing))
            # At once: each of several threads would leave out what the others add.
            remember(folder, {file: [*stamp(folder / file), listed[file]["sha256"]] for file in missing})

    def _begin_copy(self, name: str, published: Published, folder: Path) -> None:
        """Replaces a folder by one with nothing but the manifest."""
        aside = folder.with_name(f".fetching-{folder.name}")
        shutil.rmtree(aside, ignore_errors=True)  # left by a killed process
        self.bucket.download({f"store/{name}/{published.attempt}/{MANIFEST}": aside / MANIFEST})
        if not _is_copy(aside, published):
            shutil.rmtree(aside)
            raise self._damaged(name, published, f"{MANIFEST} is not the published one")
        shutil.rmtree(folder, ignore_errors=True)  # what is not, or no longer, a copy
        os.rename(aside, folder)

    def _damaged(self, name: str, published: Published, damage: str) -> UserError:
        place = f"{self.bucket.uri}/store/{name}"
        return UserError(
            f"{place}/{published.attempt} is damaged: {damage}; restore the object, or move {place}/{PUBLISHED} "
            "elsewhere and run the same command again"
        )

    def damage(self, name: str) -> str | None:
        """Returns what is missing of an artifact, or too short or long; the service checks its own objects."""
        published = self.published(name)
        if published is None:
            return f"{PUBLISHED} is missing"
        there = self.bucket.sizes_bytes(f"store/{name}/{published.attempt}")
        for file in [MANIFEST, *published.files]:
            if file not in there:
                return f"{file} is missing"
            if there[file] != (bytes_ := published.files.get(file, there[file])):
                return f"{file} has {there[file]} bytes, not the {bytes_} that were published"
        return None

    def set_aside(self, name: str) -> None:
        """Moves a damaged artifact to another folder of the bucket; no process finds it from the first step on."""
        aside = aside_of(Path(name)).name
        self.bucket.copy({f"store/{name}/{PUBLISHED}": f"store/{aside}/{PUBLISHED}"})
        self.bucket.remove([f"store/{name}/{PUBLISHED}"])
        self.bucket.move_folder(f"store/{name}", f"store/{aside}")

    def reopen(self, name: str) -> None:
        """Moves a damaged artifact's files back to its build folder: its stage continues from those that are intact."""
        if published := self.published(name):
            self.bucket.move_folder(f"store/{name}/{published.attempt}", f"store/{MAKING}{name}")
            self.bucket.remove([f"store/{MAKING}{name}/{MANIFEST}", f"store/{name}/{PUBLISHED}"])

    def peek(self, name: str, file: str) -> str | None:
        """Returns the text of a file of an artifact, or of what has been kept of it, None if there is none."""
        published = self.published(name)
        place = f"{name}/{published.attempt}" if published else f"{MAKING}{name}"
        stored = self.bucket.read(f"store/{place}/{file}")
        return stored.data.decode(errors="replace") if stored else None


def _is_copy(folder: Path, published: Published) -> bool:
    """Says whether a folder has the manifest of what was published, which tells its files."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return bool(read_manifest(folder)["sha256"] == published.sha256)
    return False


def _is_in(file: str, part: str) -> bool:
    return file == part or file.startswith(f"{part}/") or fnmatch(file, part)
