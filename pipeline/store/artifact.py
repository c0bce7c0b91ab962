"""An artifact: a folder of files that is published as a whole or not at all.

Its files are written to a temporary folder, which a single rename then publishes. Its `manifest.json` holds the sha256
of each file and of itself. A published folder is never modified; `Artifact.damage` reports any change.
"""

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeVar, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from pipeline.errors import UserError
from pipeline.store.hashes import file_sha256, known_hashes, remember, stamp
from pipeline.store.scratch import CHECK_S, MAKING, MANIFEST, LockLostError, Scratch, Written, aside_of

Result = TypeVar("Result")


Made = TypeVar("Made", bound="Artifact")
Content = TypeVar("Content")


DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errno values of an OSError that mean the disk is full."""


def map_here(function: Callable[..., Result], calls: Iterable[Sequence[Any]]) -> Iterator[Result]:
    """Applies `function` to one argument list after another in this process; workflows use Ray tasks instead."""
    return (function(*arguments) for arguments in calls)


def ignore(event: dict[str, Any]) -> None:
    """Discards an event."""


@dataclass(frozen=True)
class Context:
    """Provides a running stage with its folder, a receiver of events and a parallel map."""

    folder: Path
    """The folder to write to. It starts out empty, except that training finds what an interrupted run left in it."""
    emit: Callable[[dict[str, Any]], None] = ignore
    """Receives events: {"done": 3, "total": 9, "unit": "shards"} is progress, {"metrics": {...}, "step": n} figures,
    {"waiting": "no GPU is free"} is for the screen, {"warning": ...} for the screen and the manifest."""
    map: Callable[..., Iterable[Any]] = map_here
    """`map(function, argument_lists)` yields results in order. Another process must be able to import `function`."""
    shared: Scratch | None = None
    """The folder as processes on other nodes see it; None: as this one does."""
    device: str = "cpu"
    """Device of torch's that is reserved for the stage."""
    warnings: Sequence[str] = ()
    """The warnings of all stages behind a table, each with the labels of its stages; empty for other stages."""
    added: dict[str, Written] = field(default_factory=dict)
    """The files that tasks have written, by their names in the artifact (`add`)."""

    @property
    def scratch(self) -> Scratch:
        """The folder for processes on whatever nodes."""
        return self.shared or Scratch(self.folder)

    def add(self, written: Written, name: str | None = None) -> None:
        """Makes a file that a task wrote (`Scratch.writing`) part of the artifact, with the `name` if one is given.

        Where the nodes share no disk, the file is only in the bucket; it gets its name when the artifact is published.
        """
        name = name or written.name
        if self.scratch.store is None and name != written.name:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self.folder / written.name, path)
        self.added[name] = written

    def progress(self, done: float, total: float, unit: str, **more: Any) -> None:
        """Reports how far the stage has got. Raises LockLostError where another process has taken over (`check`)."""
        self.scratch.check(every_s=CHECK_S)
        self.emit({"done": done, "total": total, "unit": unit, **more})


@dataclass(frozen=True)
class Artifact:
    """A folder with a known set of files."""

    folder: Path
    record_file: ClassVar[str | None] = None
    """The JSON file whose content goes into the manifest as the stage's figures."""
    outline: ClassVar[tuple[str, ...] | None] = None
    """The files, as patterns (`fnmatch`), that a step gets of an input before it starts; None: all of them. Whoever
    opens another one calls `Scratch.on_this_node`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))

    def on_this_node(self, scratch: Scratch) -> Self:
        """Returns the artifact, an input of the stage whose scratch this is, with all its files on this node."""
        return replace(self, folder=scratch.on_this_node(self.folder))

    def read_json(self, name: str) -> Any:
        """Reads a JSON file in the folder. Raises UserError if it is missing or invalid."""
        path = self.folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(f"{path} is missing: {self.folder} is not a {type(self).__name__}") from None
        except ValueError as error:
            raise UserError(f"{path} is not valid JSON ({error}); restore it, or {self._remake}") from None

    def read(self, name: str, adapter: TypeAdapter[Content]) -> Content:
        """Returns what a JSON file of the folder holds, validated. Raises UserError where it is missing or invalid.

        Keys that this version does not know are ignored.
        """
        try:
            return adapter.validate_python(self.read_json(name), extra="ignore")
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            message = first["msg"].removeprefix("Value error, ")
            problem = f"is not valid ({field}: {message})" if field else f"is not valid ({message})"
            problem = f"has no {field!r}" if first["type"] == "missing" else problem
            raise UserError(f"{self.folder / name} {problem}; restore it, or {self._remake}") from None

    def write_json(self, name: str, value: Any) -> None:
        """Writes a JSON file into the folder."""
        (self.folder / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @property
    def summary(self) -> str:
        """A few words about the artifact, shown when it is finished."""
        return ""

    @property
    def manifest(self) -> dict[str, Any]:
        """The inputs, settings, library versions, times, figures and hashes, as published."""
        manifest: dict[str, Any] = self.read_json(MANIFEST)
        return manifest

    def damage(self, *, again: bool = False) -> str | None:
        """Returns what is wrong with the files of a published artifact, None if nothing is.

        Reads the files that are not remembered as intact (`pipeline.store.hashes`), and remembers those that are. With
        `again`, it reads all of them and remembers nothing. Files that are not listed in the manifest are ignored. A
        file that cannot be read is not damaged: raises UserError, since it may be readable again in a moment.
        """
        return next((damage for _, damage in self.damages(again=again)), None)

    def damages(self, files: Iterable[str] | None = None, *, again: bool = False) -> Iterator[tuple[str, str]]:
        """Yields the damaged ones of these files, by default of all in the manifest, with what `damage` says."""
        listed, found = dict[str, Any](), dict[str, list[Any]]()
        known = {} if again else known_hashes(self.folder)

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
                remember(self.folder, found)

    def check(self) -> None:
        """Raises UserError if the artifact is damaged; one without a manifest cannot be checked."""
        damage = self.damage() if (self.folder / MANIFEST).exists() else None
        if damage:
            raise UserError(f"{self.folder} is damaged: {damage}; move it elsewhere and make it again")

    @property
    def _remake(self) -> str:
        """The remedy for a folder that cannot be used, in messages; none of them advises deleting it."""
        return f"move {self.folder} elsewhere and make it again"


@dataclass(frozen=True)
class JsonArtifact(Artifact, Generic[Content]):
    """An artifact whose figures are one JSON file that holds a pydantic model or a dataclass.

    class Scores(JsonArtifact[ScoringRecord]):
        record_file = "scores.json"
    """

    record_file: ClassVar[str]

    def load(self) -> Content:
        """Returns the content of the figures file. Raises UserError where it is missing, broken or lacks a figure."""
        return self.read(self.record_file, self._adapter())

    def write(self, content: Content) -> Self:
        """Writes the figures file into the folder; returns the artifact."""
        self.write_json(self.record_file, self._adapter().dump_python(content, mode="json"))
        return self

    @classmethod
    def _adapter(cls) -> TypeAdapter[Content]:
        bases = (base for parent in cls.__mro__ for base in parent.__dict__.get("__orig_bases__", ()))
        (content,) = next(get_args(base) for base in bases if get_origin(base) is JsonArtifact)
        return _adapter_of(content)


@cache
def _adapter_of(content: Any) -> TypeAdapter[Any]:
    """Makes what validates and dumps a type; once, since it takes milliseconds."""
    return TypeAdapter(content)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Returns the manifest of an artifact. Raises ValueError if it does not match its own sha256, and OSError."""
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if manifest["sha256"] != _canonical_sha256({key: value for key, value in manifest.items() if key != "sha256"}):
        raise ValueError("it does not match its own sha256")
    return manifest


def _damage(name: str, wrong: Callable[[str], str | None]) -> str | None:
    """Returns what `wrong` returns about a file, or why the file cannot be the published one. Raises UserError."""
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


def making_folder(target: Path) -> Path:
    """Returns the folder in which an artifact is made before it is published as `target`."""
    return target.with_name(f"{MAKING}{target.name}")


def set_aside(folder: Path) -> Path:
    """Moves a folder that must not be used to a new name beside it, and returns that; `aiayn clean` lists it."""
    aside = aside_of(folder)
    os.rename(folder, aside)
    return aside


@contextmanager
def report_full_disk(target: Path) -> Iterator[None]:
    """Raises UserError if the body, which writes `target`, fills the disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        free_gb = shutil.disk_usage(target.parent).free / 1e9
        raise UserError(
            f"the disk of {target.parent} is full ({free_gb:.2f} GB free) while making {target.name}; "
            "free some space and run the same command again"
        ) from error


def publish(
    target: Path,
    make: Callable[[Path], Made],
    manifest: dict[str, Any],
    resume: bool = False,
    ours: Callable[[], bool] = lambda: True,
    deliver: Callable[[Path], None] | None = None,
    flush: bool = False,
    added: Mapping[str, Written] = MappingProxyType({}),
    remembers: bool = False,
) -> Made:
    """Publishes an artifact: calls `make` with a folder to write to, then renames that folder to `target`.

    `manifest.json` is `manifest` plus times, the artifact's figures, the sha256 of each file and its own; the files
    `added` (`Context.add`) are not read for it. The folder to write to is `<parent>/.making-<name>`. Unless `resume` is
    set, it is removed first if an interrupted call left one, and again after an error. Once `ours()` is false, somebody
    else has begun to make `target`, and nothing is published or removed. `deliver` gets the finished folder just before
    it is renamed. `flush` waits until all is on the disk, so that not even a power failure leaves a part. If it
    `remembers`, the next `Artifact.damage` reads no file. Raises LockLostError where `ours()` is false, and UserError
    if `target` exists or the disk is full.
    """
    if target.exists():
        raise UserError(f"{target} exists already; move it elsewhere or choose another folder")
    making = making_folder(target)
    if making.exists() and not resume:
        shutil.rmtree(making)
    started = time.time()
    with report_full_disk(target):
        try:
            making.mkdir(parents=True, exist_ok=True)
            artifact = make(making)
            for folder in sorted(path for path in making.rglob("*") if path.is_dir())[::-1]:
                with suppress(OSError):  # all but the empty ones, which `Context.add` has left
                    os.rmdir(folder)
            files = {
                path.relative_to(making).as_posix(): path
                for path in sorted(making.rglob("*"))
                if path.is_file() and path != making / MANIFEST and not _is_hidden(path.relative_to(making))
            }
            for name in files.keys() & added.keys():
                if files[name].stat().st_size != added[name].size_bytes:
                    raise UserError(f"{files[name]} was changed after it was written; run the same command again")
            hashed = {
                name: [*stamp(path), added[name].sha256 if name in added else file_sha256(path)]
                for name, path in files.items()
            }
            complete = {
                **manifest,
                "started": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
                "seconds": round(time.time() - started, 3),
                "figures": artifact.read_json(artifact.record_file) if artifact.record_file else {},
                "files": {
                    **{name: {"bytes": each.size_bytes, "sha256": each.sha256} for name, each in added.items()},
                    **{name: {"bytes": each[0], "sha256": each[-1]} for name, each in hashed.items()},
                },
            }
            complete = json.loads(json.dumps(complete))  # the values that readers will get
            artifact.write_json(MANIFEST, {**complete, "sha256": _canonical_sha256(complete)})
            if not ours():
                raise LockLostError.of(target)
            if deliver:
                deliver(making)
            for path in (*files.values(), making / MANIFEST, making) if flush else ():
                _flush(path)
            os.rename(making, target)
            if flush:
                _flush(target.parent)
            if remembers:
                remember(target, hashed)
        except BaseException:
            if not resume and ours():
                shutil.rmtree(making, ignore_errors=True)
            raise
    return replace(artifact, folder=target)


def _is_hidden(path: Path) -> bool:
    """Says whether a file is in a folder that could not be removed (`pipeline.store.scratch.temporary_folder`)."""
    return any(part.startswith(".") for part in path.parts)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
