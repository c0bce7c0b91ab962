"""A bucket that mirrors published artifacts, each as a whole.

    mirror.push(name, folder)               # after it was published in `folder`
    mirror.pull(name, published, folder)    # on another machine

An artifact's files are in `store/<name>/<attempt>/`. `store/<name>/published.json` names the attempt that counts; it is
written last, and only if it does not exist. So nobody sees a partial artifact, and if two processes push the same one,
the first to finish publishes it. An unfinished training run's files are in `store/.making-<name>/`
(`pipeline.store.build`).
"""

import json
import logging
import os
import secrets
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline.errors import UserError, mistakes
from pipeline.store.artifact import MANIFEST, Artifact, adapter_of, parse_manifest, read_manifest, report_full_disk
from pipeline.store.bucket import Bucket
from pipeline.store.folders import BUILD_PREFIX, PULLING_PREFIX, Inside, remove
from pipeline.store.hashes import hashes_file, known_hashes, remember

PUBLISHED = "published.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Published:
    """The content of `published.json`."""

    attempt: Inside
    sha256: str
    """The manifest's sha256."""
    files: Mapping[Inside, int]
    """Sizes in bytes by name, without the manifest."""

    def is_in(self, folder: Path) -> bool:
        """Whether a folder has the published manifest."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return bool(read_manifest(folder)["sha256"] == self.sha256)
        return False


@dataclass(frozen=True)
class Mirror:
    """The artifacts of a bucket. All methods raise BucketError if the service does not answer."""

    bucket: Bucket

    def published(self, name: str) -> Published | None:
        """Returns an artifact's `published.json`, or None if it is not published. Raises UserError if it is broken."""
        stored = self.bucket.read(place := f"store/{name}/{PUBLISHED}")
        try:
            return adapter_of(Published).validate_json(stored.data, extra="ignore") if stored else None
        except ValidationError as error:
            wrong = f"{self.bucket.uri}/{place} is broken ({mistakes(error)})"
            raise UserError(f"{wrong}; move it elsewhere and rerun") from None

    def manifest(self, name: str, copy: Path) -> dict[str, Any] | None:
        """Returns a published artifact's manifest, of which this machine may have a `copy`; None if it is not intact.

        Raises UserError if `published.json` is broken.
        """
        if (published := self.published(name)) and published.is_in(copy):
            return read_manifest(copy)
        stored = published and self.bucket.read(f"store/{name}/{published.attempt}/{MANIFEST}")
        manifest = parse_manifest(stored.data) if stored else {}
        return manifest if published and manifest.get("sha256") == published.sha256 else None

    def push(self, name: str, folder: Path) -> None:
        """Publishes an artifact of this machine, unless another process did so meanwhile."""
        manifest = Artifact(folder).manifest
        sizes_bytes = {file: entry["bytes"] for file, entry in manifest["files"].items()}
        published = Published(secrets.token_hex(8), manifest["sha256"], sizes_bytes)
        files = {f"store/{name}/{published.attempt}/{file}": folder / file for file in [*sizes_bytes, MANIFEST]}
        try:
            self.bucket.upload(files)
        except BaseException:
            with suppress(UserError):
                self.bucket.remove(files)  # unpublished, so nobody reads them
            raise
        # If this raises, the write may have succeeded all the same, so the files must stay.
        if not self.bucket.create(f"store/{name}/{PUBLISHED}", json.dumps(asdict(published)).encode()):
            self.bucket.remove(files)
            logger.warning("%s was published by another command meanwhile; its files count", name)
        self.bucket.remove_folder(f"store/{BUILD_PREFIX}{name}")

    def pull(self, name: str, published: Published, folder: Path, most_bytes: float) -> None:
        """Downloads an artifact, or its files of at most `most_bytes` each, checks it and publishes it as `folder`.

        Replaces any folder there, and continues an interrupted call. The caller holds a lock on `folder`. Raises
        UserError if a file is damaged in the bucket, or the disk is full.
        """
        building, place = folder.with_name(f"{PULLING_PREFIX}{folder.name}"), f"store/{name}/{published.attempt}"
        copy = Artifact(building)
        with report_full_disk(folder):
            if not published.is_in(building):
                remove(building)  # left by a killed process
                self.bucket.download({f"{place}/{MANIFEST}": building / MANIFEST})
                if not published.is_in(building):
                    remove(building)
                    raise self._damaged(name, published, f"{MANIFEST} is broken, or not the published one")
            wanted = [file for file, listed in copy.manifest["files"].items() if listed["bytes"] <= most_bytes]
            missing = [file for file, _ in copy.damages(wanted)]
            self.bucket.download({f"{place}/{file}": building / file for file in missing})
        for file, damage in copy.damages(missing):
            (building / file).unlink(missing_ok=True)
            raise self._damaged(name, published, damage)
        remove(folder)  # damaged, or of an earlier generation
        os.rename(building, folder)
        remember(hashes_file(folder), known_hashes(hashes_file(building)))
        hashes_file(building).unlink(missing_ok=True)

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
        for file, size_bytes in {MANIFEST: there.get(MANIFEST), **published.files}.items():
            if file not in there:
                return f"{file} is missing"
            if there[file] != size_bytes:
                return f"{file} has {there[file]} bytes, not the {size_bytes} that were published"
        return None

    def set_aside(self, name: str) -> None:
        """Unpublishes a damaged artifact. Its files stay, and are orphans once it is published again."""
        self.bucket.remove([f"store/{name}/{PUBLISHED}"])

    def reopen(self, name: str) -> None:
        """Moves a damaged artifact back to its build folder, so that its stage resumes from the intact files."""
        if published := self.published(name):
            self.bucket.move_folder(f"store/{name}/{published.attempt}", f"store/{BUILD_PREFIX}{name}")
            self.bucket.remove([f"store/{BUILD_PREFIX}{name}/{MANIFEST}", f"store/{name}/{PUBLISHED}"])

    def peek(self, name: str, file: str) -> str | None:
        """Returns the text of a file, published or of an unfinished run; None if it does not exist."""
        published = self.published(name)
        place = f"{name}/{published.attempt}" if published else f"{BUILD_PREFIX}{name}"
        stored = self.bucket.read(f"store/{place}/{file}")
        return stored.data.decode(errors="replace") if stored else None

    def orphans(self) -> dict[str, int]:
        """Returns the folders that nobody reads, with their bytes: all of a published artifact but what was published.

        They are of killed or late uploads, or damaged.
        """
        found, orphans = Counter[str](), dict[str, int]()
        for file, size_bytes in self.bucket.sizes_bytes("store").items():
            name, _, within = file.partition("/")
            found[name if name.startswith(".") else f"{name}/{within.partition('/')[0]}"] += size_bytes
        for place, size_bytes in found.items():
            name, _, attempt = place.removeprefix(BUILD_PREFIX).partition("/")
            if not name.startswith(".") and attempt != PUBLISHED and (published := self.published(name)):
                orphans |= {f"store/{place}": size_bytes} if attempt != published.attempt else {}
        return orphans
