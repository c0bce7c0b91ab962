"""Artifacts: folders that are published as a whole or not at all.

An artifact is built in a temporary folder and published by a single rename. Its `manifest.json` holds the sha256 of
each file and of itself. A published folder is never modified; `Artifact.damage` detects changes.
"""

import errno
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from pipeline.errors import LockLostError, UserError, mistakes
from pipeline.store.folders import HIDDEN, MANIFEST, build_folder, inside, remove
from pipeline.store.hashes import file_sha256, hashes_file, known_hashes, remember, stamp

ArtifactT = TypeVar("ArtifactT", bound="Artifact")
Content = TypeVar("Content")


logger = logging.getLogger(__name__)

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""errno values for a full disk or quota."""
EXISTS = (errno.EEXIST, errno.ENOTEMPTY)


@dataclass(frozen=True)
class Artifact:
    """A folder with a known set of files."""

    folder: Path
    record_file: ClassVar[str | None] = None
    """The JSON file copied into the manifest, under "figures"."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))

    def read_json(self, name: str) -> Any:
        """Reads a JSON file of the folder. Raises UserError if it is missing or invalid."""
        path = self.folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(f"{path} is missing: {self.folder} is not a {type(self).__name__}") from None
        except ValueError as error:
            raise UserError(f"{path} is not valid JSON ({error}); restore it, or {self._remake}") from None

    def read(self, name: str, adapter: TypeAdapter[Content], extra: Literal["ignore", "forbid"] = "ignore") -> Content:
        """Reads and validates a JSON file, by default without unknown keys. Raises UserError if it is not valid."""
        try:
            return adapter.validate_python(self.read_json(name), extra=extra)
        except ValidationError as error:
            problem = f"{self.folder / name} is not valid ({mistakes(error)})"
            raise UserError(f"{problem}; restore it, or {self._remake}") from None

    def write_json(self, name: str, value: Any) -> None:
        """Writes a JSON file into the folder."""
        (self.folder / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @property
    def summary(self) -> str:
        """A few words shown when the artifact is finished."""
        return ""

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest as published: inputs, settings, library versions, times, the record and hashes."""
        manifest: dict[str, Any] = self.read_json(MANIFEST)
        return manifest

    def damage(self, *, again: bool = False) -> str | None:
        """Describes the first damaged file of a published artifact, or returns None.

        Reads only files not yet known to be intact (`pipeline.store.hashes`) and remembers those that are; with
        `again`, reads all files and remembers nothing. Files not listed in the manifest are ignored. An unreadable
        file raises UserError instead, since the failure may be temporary.
        """
        return next((damage for _, damage in self.damages(again=again)), None)

    def damages(self, files: Iterable[str] | None = None, *, again: bool = False) -> Iterator[tuple[str, str]]:
        """Yields (name, damage) of damaged files, among `files` or all in the manifest."""
        listed, found = dict[str, Any](), dict[str, list[Any]]()
        known = {} if again else known_hashes(hashes_file(self.folder))

        def wrong(name: str) -> str | None:
            path, published = self.folder / name, listed[name]
            hashed = [*stamp(path), published["sha256"]]
            if hashed[0] != published["bytes"]:
                return f"{name} has {hashed[0]} bytes, not the {published['bytes']} listed in {MANIFEST}"
            if known.get(name) == hashed:
                return None
            if file_sha256(path) != published["sha256"]:
                return f"{name} does not match its sha256 in {MANIFEST}"
            found[name] = hashed
            return None

        try:
            if damage := _damage(MANIFEST, lambda _: listed.update(read_manifest(self.folder)["files"])):
                yield MANIFEST, damage
            for name in listed if files is None else files:
                if damage := _damage(name, wrong):
                    yield name, damage
        finally:
            if not again:
                remember(hashes_file(self.folder), found)

    def check(self) -> None:
        """Raises UserError if the artifact is damaged. Without a manifest there is nothing to check."""
        damage = self.damage() if (self.folder / MANIFEST).exists() else None
        if damage:
            raise UserError(f"{self.folder} is damaged: {damage}; move it elsewhere and rebuild it")

    @property
    def _remake(self) -> str:
        """The remedy in messages; none advises deletion."""
        return f"move {self.folder} elsewhere and rebuild it"


class JsonArtifact(Artifact, Generic[Content]):
    """An artifact with a JSON file that holds a pydantic model or a dataclass.

    class Scores(JsonArtifact[ScoringRecord]):
        record_file = "scores.json"
    """

    record_file: ClassVar[str]

    def load(self) -> Content:
        """Reads the record. Raises UserError if it is missing, invalid or incomplete."""
        return self.read(self.record_file, self._adapter())

    def write(self, content: Content) -> Self:
        """Writes the record; returns the artifact."""
        self.write_json(self.record_file, self._adapter().dump_python(content, mode="json"))
        return self

    @classmethod
    def _adapter(cls) -> TypeAdapter[Content]:
        bases = (base for parent in cls.__mro__ for base in parent.__dict__.get("__orig_bases__", ()))
        (content,) = next(get_args(base) for base in bases if get_origin(base) is JsonArtifact)
        return adapter_of(content)


@cache
def adapter_of(content: Any) -> TypeAdapter[Any]:
    """Builds the validator of a type; cached, since that takes milliseconds."""
    return TypeAdapter(content)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Reads an artifact's manifest. Raises OSError, and errors like `parse_manifest`."""
    return parse_manifest((folder / MANIFEST).read_bytes())


def parse_manifest(text: bytes) -> dict[str, Any]:
    """Parses a manifest. Raises ValueError, KeyError or TypeError if it is not intact or names files elsewhere."""
    manifest: dict[str, Any] = json.loads(text)
    if manifest["sha256"] != _canonical_sha256({key: value for key, value in manifest.items() if key != "sha256"}):
        raise ValueError("it does not match its own sha256")
    for name in manifest["files"]:
        inside(name)
    return manifest


def content_sha256(manifest: Mapping[str, Any]) -> str:
    """Returns the sha256 of an artifact's file names and hashes, the same whenever and wherever these were written."""
    contents = {name: each["sha256"] for name, each in manifest["files"].items()}
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def _damage(name: str, wrong: Callable[[str], str | None]) -> str | None:
    """Returns `wrong(name)`, or why the file cannot be the published one. Raises UserError if it is unreadable."""
    try:
        return wrong(name)
    except FileNotFoundError:
        return f"{name} is missing"
    except (IsADirectoryError, NotADirectoryError):
        return f"{name} is not a file"
    except OSError as error:
        raise UserError(
            f"{error.filename or name} cannot be read ({error.strerror}); restore access to it and run the same "
            "command again"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{MANIFEST} is broken: {error}"


def _canonical_sha256(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


@contextmanager
def report_full_disk(target: Path) -> Iterator[None]:
    """Raises UserError if the disk fills up while the body writes `target`."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        full = Path(error.filename or target)
        free_gb = shutil.disk_usage(full.parent if full.parent.exists() else target.parent).free / 1e9
        raise UserError(
            f"{full} cannot be written ({error.strerror}; its disk has {free_gb:.2f} GB free); "
            "free some space and run the same command again"
        ) from error


def publish(
    target: Path,
    build: Callable[[Path], ArtifactT],
    manifest: dict[str, Any],
    resume: bool = False,
    holds_lock: Callable[[], bool] = lambda: True,
    flush: bool = False,
) -> ArtifactT:
    """Publishes an artifact: calls `build` with a temporary folder, then renames that folder to `target`.

    `manifest.json` is `manifest` plus times, the artifact's record and the sha256 of each file and of itself. The
    temporary folder is `<parent>/.making-<name>`. Unless `resume` is set, a leftover one is removed first, and it is
    removed after an error. If `holds_lock()` turns false, another process is building `target`, and nothing is
    published or removed. `flush` syncs all files to disk, so that not even a power failure leaves a partial artifact.
    Raises LockLostError if the lock is lost, and UserError if `target` exists or the disk is full.
    """
    if os.path.lexists(target):
        raise UserError(f"{target} already exists; move it elsewhere or choose another folder")
    building = build_folder(target)
    if building.exists() and not resume:
        remove(building)
    started = time.time()
    with report_full_disk(target):
        try:
            building.mkdir(parents=True, exist_ok=True)
            artifact = build(building)
            found = {path.relative_to(building).as_posix(): path for path in sorted(building.rglob("*"))}
            files = {  # but those in folders that could not be removed (`temporary_folder`)
                name: path
                for name, path in found.items()
                if path.is_file() and name != MANIFEST and not name.startswith(".") and "/." not in name
            }
            hashed = {name: [*stamp(path), file_sha256(path)] for name, path in files.items()}
            complete = {
                **manifest,
                "started": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
                "seconds": round(time.time() - started, 3),
                "figures": artifact.read_json(artifact.record_file) if artifact.record_file else {},
                "files": {name: {"bytes": each[0], "sha256": each[-1]} for name, each in hashed.items()},
            }
            complete = json.loads(json.dumps(complete))  # as readers will parse it
            artifact.write_json(MANIFEST, {**complete, "sha256": _canonical_sha256(complete)})
            if not holds_lock():
                raise LockLostError.of(target)
            for leftover in building.glob(f"{HIDDEN}*"):  # or written since by a task of a killed process
                shutil.rmtree(leftover, ignore_errors=True)
            for path in (*files.values(), building / MANIFEST, building) if flush else ():
                _flush(path)
            try:
                os.rename(building, target)
            except OSError as error:  # on NFS, a client may learn late what another published
                if error.errno not in EXISTS:
                    raise
                (theirs := Artifact(target)).check()
                same = theirs.manifest["files"] == complete["files"]
                logger.warning("%s was published meanwhile%s", target, "" if same else "; its other content counts")
                remove(building)
                return replace(artifact, folder=target)
            if flush:
                _flush(target.parent)
            remember(hashes_file(target), hashed)
        except BaseException:
            if not resume and holds_lock():
                shutil.rmtree(building, ignore_errors=True)
            raise
    return replace(artifact, folder=target)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
