"""Published artifacts in a bucket.

An artifact is `store/<name>/<attempt>/` with all its files, and `store/<name>/published.json`, written last and only if
it is not there yet, which says which attempt counts. So nobody sees half an artifact, and of two who made the same one,
only the first has published it. What a training keeps on its way is in `store/.making-<name>/`.
"""

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.errors import UserError
from pipeline.store.artifact import MANIFEST, Artifact
from pipeline.store.bucket import Bucket
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

    def download(self, name: str, published: Published, files: Iterable[str], folder: Path) -> None:
        """Copies the manifest and files of an artifact to a folder."""
        place = f"store/{name}/{published.attempt}"
        self.bucket.download({f"{place}/{file}": folder / file for file in [MANIFEST, *files]})

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
