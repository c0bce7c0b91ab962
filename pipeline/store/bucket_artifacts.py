"""Published artifacts in a bucket.

An artifact's files are in `store/<name>/<attempt>/`. `store/<name>/published.json` names the attempt that counts; it is
written last, and only if it does not exist. So nobody sees a partial artifact, and if two processes build the same one,
the first to finish publishes it. An unfinished training run keeps its files in `store/.making-<name>/`.
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

from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.store.artifact import MANIFEST, Artifact, adapter_of, read_manifest
from pipeline.store.bucket import AT_ONCE, Bucket
from pipeline.store.hashes import file_sha256, hashes_file, remember, stamp
from pipeline.store.locks import FileLock
from pipeline.store.names import Inside
from pipeline.store.scratch import BUILD_PREFIX, Written, aside_path

PUBLISHED = "published.json"


@dataclass(frozen=True)
class Published:
    """The content of `published.json`."""

    attempt: Inside
    sha256: str
    """The manifest's sha256."""
    files: Mapping[Inside, int]
    """Sizes in bytes by name, without the manifest."""


@dataclass(frozen=True)
class BucketArtifacts:
    """The artifacts of a bucket. All methods raise BucketError if the service does not answer."""

    bucket: Bucket

    def published(self, name: str) -> Published | None:
        """Returns an artifact's `published.json`, or None if it is not published. Raises UserError if it is broken."""
        stored = self.bucket.read(place := f"store/{name}/{PUBLISHED}")
        try:
            return adapter_of(Published).validate_json(stored.data, extra="ignore") if stored else None
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise UserError(f"{self.bucket.uri}/{place} is broken ({why}); move it elsewhere and rerun") from None

    def upload(self, name: str, added: Mapping[str, Written], folder: Path) -> None:
        """Publishes a finished artifact: the files in the folder, and those `added` by tasks.

        Raises UserError if another process published it first.
        """
        manifest = Artifact(folder).manifest
        sizes_bytes = {file: entry["bytes"] for file, entry in manifest["files"].items()}
        published = Published(secrets.token_hex(8), manifest["sha256"], sizes_bytes)
        place = f"store/{name}/{published.attempt}"
        files = [f"{place}/{file}" for file in [*sizes_bytes, MANIFEST]]
        here = [*(file for file in sizes_bytes if file not in added), MANIFEST]
        try:
            self.bucket.copy(
                {f"store/{BUILD_PREFIX}{name}/{written.name}": f"{place}/{file}" for file, written in added.items()}
            )
            self.bucket.upload({f"{place}/{file}": folder / file for file in here})
        except BaseException:
            self.bucket.remove(files)  # unpublished, so nobody reads them
            raise
        # If this raises, the write may have succeeded all the same, so the files must stay.
        if not self.bucket.create(f"store/{name}/{PUBLISHED}", json.dumps(asdict(published)).encode()):
            self.bucket.remove(files)
            raise UserError(f"{name} was published by another command meanwhile; run the same command again")
        self.bucket.remove_folder(f"store/{BUILD_PREFIX}{name}")

    def fetch(self, name: str, published: Published, parts: Iterable[str], folder: Path) -> None:
        """Downloads parts of an artifact into a possibly incomplete copy: files, folders or patterns (`fnmatch`).

        Intact files of the copy are kept. Concurrent processes on this machine download a file once. A file gets its
        name after verification. Raises UserError if one is damaged.
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
                if not any(copy.damages([file])):  # downloaded by another process
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
                lock.take()  # fails harmlessly if another process has it: `aiayn clean` skips locked copies
                list(threads.map(bring, missing))
            # In one call: concurrent ones would overwrite each other's additions.
            remember(hashes_file(folder), {file: [*stamp(folder / file), listed[file]["sha256"]] for file in missing})

    def _begin_copy(self, name: str, published: Published, folder: Path) -> None:
        """Replaces a folder by a copy that holds only the manifest."""
        aside = folder.with_name(f".fetching-{folder.name}")
        shutil.rmtree(aside, ignore_errors=True)  # left by a killed process
        self.bucket.download({f"store/{name}/{published.attempt}/{MANIFEST}": aside / MANIFEST})
        if not _is_copy(aside, published):
            shutil.rmtree(aside)
            raise self._damaged(name, published, f"{MANIFEST} is broken, or not the published one")
        shutil.rmtree(folder, ignore_errors=True)  # not a copy of this artifact, or outdated
        os.rename(aside, folder)

    def _damaged(self, name: str, published: Published, damage: str) -> UserError:
        place = f"{self.bucket.uri}/store/{name}"
        return UserError(
            f"{place}/{published.attempt} is damaged: {damage}; restore the object, or move {place}/{PUBLISHED} "
            "elsewhere and run the same command again"
        )

    def damage(self, name: str) -> str | None:
        """Describes a missing file, or one of the wrong size, or returns None; the service checksums its objects."""
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
        """Moves a damaged artifact to another folder of the bucket; the first step hides it from all processes."""
        aside = aside_path(Path(name)).name
        self.bucket.copy({f"store/{name}/{PUBLISHED}": f"store/{aside}/{PUBLISHED}"})
        self.bucket.remove([f"store/{name}/{PUBLISHED}"])
        self.bucket.move_folder(f"store/{name}", f"store/{aside}")

    def reopen(self, name: str) -> None:
        """Moves a damaged artifact back to its build folder, so that its stage resumes from the intact files."""
        if published := self.published(name):
            self.bucket.move_folder(f"store/{name}/{published.attempt}", f"store/{BUILD_PREFIX}{name}")
            self.bucket.remove([f"store/{BUILD_PREFIX}{name}/{MANIFEST}", f"store/{name}/{PUBLISHED}"])

    def peek(self, name: str, file: str) -> str | None:
        """Returns the text of a file, published or kept by an unfinished stage; None if it does not exist."""
        published = self.published(name)
        place = f"{name}/{published.attempt}" if published else f"{BUILD_PREFIX}{name}"
        stored = self.bucket.read(f"store/{place}/{file}")
        return stored.data.decode(errors="replace") if stored else None


def _is_copy(folder: Path, published: Published) -> bool:
    """Whether a folder has the published manifest."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return bool(read_manifest(folder)["sha256"] == published.sha256)
    return False


def _is_in(file: str, part: str) -> bool:
    return file == part or file.startswith(f"{part}/") or fnmatch(file, part)
