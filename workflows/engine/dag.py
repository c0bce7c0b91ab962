"""The DAG: stages, and the steps made from them, whose names are known before anything has run.

    clean = Stage("cleaning.clean", cleaning.clean, Corpus)
    step = clean("clean en-de", corpus_step, CleaningSettings())     # a Step[Corpus]

A step is named by a fingerprint of its stage's name and version, its settings and its inputs' fingerprints. So it is
known at once which steps are cached and which must run, and changing a setting reruns only the steps that depend on it.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from pipeline.errors import UserError
from pipeline.settings import Settings, flatten
from pipeline.store.artifact import MANIFEST, Artifact
from pipeline.store.store import Store

ROOT = Path(__file__).parents[2]
PACKAGES = ("model", "pipeline", "workflows")
SUFFIXES = {".py", ".j2", ".js", ".css"}

A = TypeVar("A", bound=Artifact)
A_co = TypeVar("A_co", bound=Artifact, covariant=True)


@dataclass(frozen=True)
class Imported:
    """A function imported on its first call, so that naming it does not load its libraries."""

    name: str
    """Its module and itself, as entry points are written, e.g. `pipeline.training.on_ray:train`."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Returns what the function returns."""
        return resolve_name(self.name)(*arguments, **named)


@dataclass(frozen=True)
class Stage(Generic[A_co]):
    """A kind of step: a function from (context, artifacts, settings) to one artifact.

    Raise `version` when the function's output changes for the same input; adding a log line to it, renaming it or
    moving it changes no fingerprint.
    """

    name: str
    """Names its steps in the store, e.g. `cleaning.clean`. It is part of every fingerprint, so it stays the same
    wherever the function moves. The names of the steps' folders begin with the part before the dot."""
    function: Callable[..., A_co]
    makes: type[A_co]
    version: int = 1
    cpus: float = 1
    """CPUs the step itself reserves; 0 for a step that only waits for other Ray work."""
    gpus: float = 0
    """Share of a GPU on which it computes, waiting for one to be free; in a cluster without any, it computes on its
    CPUs."""
    computes: bool = False
    """Says that it runs in a process like those that train (`pipeline.environment`), which may have torch imported
    already. This is for stages that import torch and follow a training."""
    resumes: bool = False
    """Says whether it continues from what an interrupted run left behind."""
    follows_source: bool = False
    """Says whether it runs again after any change to the project's source. This is for tables, which take a second to
    make and must never be older than the code and the paper's numbers they are made from."""

    @property
    def short_name(self) -> str:
        """The part of the name before the dot: what options call it, and how its folders' names begin."""
        return self.name.partition(".")[0]

    def __call__(self, label: str, *arguments: Any) -> "Step[A_co]":
        """Returns a step of the DAG. Arguments are steps, settings, plain values, or lists and dataclasses of these."""
        return Step(label, self, arguments)


@dataclass(frozen=True, eq=False)
class Step(Generic[A_co]):
    """A handle on a stage's future artifact; passed to other stages, it is an edge of the DAG."""

    label: str
    """The step's name on the screen, e.g. `train en-de base`."""
    stage: Stage[A_co]
    arguments: tuple[Any, ...]
    out: Path | None = None
    """The folder a single stage publishes to; None: a folder in the store named by the fingerprint."""

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the artifact."""
        identity = [self.stage.name, self.stage.version, _describe(self.arguments)]
        if self.stage.follows_source:
            identity.append(source_sha256())
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """The artifact's name in a store."""
        return str(self.out or f"{self.stage.short_name}-{self.fingerprint}")

    @property
    def inputs(self) -> "list[Step[Artifact]]":
        """The steps among the arguments, in order and without duplicates."""
        return list(dict.fromkeys(_instances(self.arguments, Step)))

    @cached_property
    def is_trained(self) -> bool:
        """Whether it is a training run or depends on one."""
        return self.stage.resumes or any(needed.is_trained for needed in self.inputs)

    def check_artifacts(self) -> None:
        """Raises UserError if an artifact passed directly as an argument, as to single stages, is damaged."""
        for artifact in _instances(self.arguments, Artifact):
            artifact.check()

    def is_made(self, store: Store) -> bool:
        """Returns whether the artifact is published. Raises UserError if other settings made `out`."""
        if store.find(self.name) is None:
            return False
        if self.out:
            manifest = self.published(store).manifest
            if manifest.get("fingerprint") != self.fingerprint:
                differing = ", ".join(self.differing(manifest)) or "other text or by another version"
                raise UserError(f"{self.out} was made with {differing}; move it elsewhere or choose another folder")
        return True

    def differing(self, manifest: Mapping[str, Any]) -> Iterator[str]:
        """Yields the settings of a manifest's artifact that differ from the step's."""
        here = [argument for argument in self.arguments if isinstance(argument, Settings)]
        for there, settings in zip(manifest.get("settings", ()), here, strict=False):
            # The identity of text is its content, of which a manifest's settings say nothing.
            now = flatten(settings.identity()) if type(settings).identity is Settings.identity else {}
            for name, value in flatten(there).items():
                if name in now and now[name] != value:
                    yield f"{name} {value} (here {now[name]})"

    def published(self, store: Store) -> A_co:
        """Returns the artifact of a step that has already run, with the files of its `outline` on this machine."""
        return self.stage.makes(store.fetch(self.name, self.stage.makes.outline))

    def damage(self, store: Store) -> str | None:
        """Returns what is wrong with the files of the published artifact (`Store.damage`).

        Raises UserError if the damaged folder is `out`, which only its user may move, or if other settings made it.
        """
        if self.out and self.out.is_dir() and not (self.out / MANIFEST).exists():
            raise UserError(f"{self.out} is a folder that this command did not make; choose another one")
        damage = store.damage(self.name)
        if damage and self.out:
            raise UserError(f"{self.out} is damaged: {damage}; move it elsewhere or choose another folder")
        self.is_made(store)
        return damage


Ref: TypeAlias = Step[A] | A
"""A step while the DAG is drawn; its artifact in the stage that receives it."""


def to_artifact(reference: Ref[A]) -> A:
    """Returns the artifact that a reference is in a stage. Raises TypeError if it is still a step."""
    if isinstance(reference, Step):
        raise TypeError(f"{reference.label} is a step; only a stage has its artifact")
    return reference


def to_step(reference: Ref[A]) -> Step[A]:
    """Returns the step that a reference is while the DAG is drawn. Raises TypeError if it is an artifact already."""
    if not isinstance(reference, Step):
        raise TypeError(f"{reference.folder} is an artifact; only before a stage runs it is a step")
    return reference


class ArtifactOf(Protocol):
    """Returns the artifact of a step."""

    def __call__(self, step: Step[A], /) -> A: ...


def resolved(value: Any, artifact_of: ArtifactOf) -> Any:
    """Replaces steps by artifacts at any depth of tuples, lists and dataclasses in `value`."""
    if isinstance(value, Step):
        return artifact_of(value)
    if isinstance(value, tuple | list):
        return type(value)(resolved(item, artifact_of) for item in value)
    if any(True for _ in _instances(value, Step)):
        return replace(
            value, **{field.name: resolved(getattr(value, field.name), artifact_of) for field in fields(value)}
        )
    return value


def _instances(value: Any, kind: type) -> Iterator[Any]:
    """Yields the instances of `kind` in `value`, at any depth of tuples, lists, dictionaries and dataclasses."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _instances(item, kind)
    elif isinstance(value, dict):
        yield from _instances(list(value.values()), kind)
    elif is_dataclass(value) and not isinstance(value, type | Step):
        for field in fields(value):
            yield from _instances(getattr(value, field.name), kind)


def _describe(value: Any) -> Any:
    """Returns the JSON values from which a fingerprint is computed."""
    if isinstance(value, Step):
        return value.fingerprint
    if isinstance(value, Settings):
        return value.identity()
    if isinstance(value, Artifact):
        return value.manifest.get("fingerprint") or value.manifest["sha256"]
    if isinstance(value, tuple | list):
        return [_describe(item) for item in value]
    if isinstance(value, dict):
        return {name: _describe(item) for name, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _describe(getattr(value, field.name)) for field in fields(value)}
    return str(value) if isinstance(value, Path) else value


def in_order(
    targets: Iterable[Step[Artifact]], follow: Callable[[Step[Artifact]], bool] = lambda _step: True
) -> list[Step[Artifact]]:
    """Returns `targets` and all steps they need, inputs first. Steps with the same fingerprint appear once.

    A step for which `follow` returns False is left out, and so is what only such steps need.
    """
    ordered: dict[str, Step[Artifact]] = {}

    def visit(step: Step[Artifact]) -> None:
        if step.fingerprint not in ordered and follow(step):
            for needed in step.inputs:
                visit(needed)
            ordered[step.fingerprint] = step

    for target in targets:
        visit(target)
    return list(ordered.values())


def to_run(targets: Iterable[Step[Artifact]], store: Store) -> dict[Step[Artifact], str]:
    """Returns the steps that must run to make `targets`, inputs first, and what is wrong with those that are damaged.

    They are those that are needed and missing, whose text is empty, or damaged. Raises UserError if a folder passed
    directly to a single stage is damaged.
    """
    damages: dict[str, str | None] = {}

    def must_run(step: Step[Artifact]) -> bool:
        if step.fingerprint not in damages:
            step.check_artifacts()
            damages[step.fingerprint] = "" if store.find(step.name) is None else step.damage(store)
        return damages[step.fingerprint] is not None

    return {step: damages[step.fingerprint] or "" for step in in_order(targets, must_run)}


def inputs_of(manifest: Mapping[str, Any]) -> list[str]:
    """Returns the fingerprints of the artifacts that one was made from, as its manifest lists them."""
    listed = manifest.get("inputs", [])
    # Until November 2026 they were listed by label, of which two could be alike.
    return [*listed.values()] if isinstance(listed, Mapping) else [each["fingerprint"] for each in listed]


def labels_of(manifest: Mapping[str, Any]) -> list[str]:
    """Returns the labels of the same artifacts, in the same order."""
    listed = manifest.get("inputs", [])
    return [*listed] if isinstance(listed, Mapping) else [each["label"] for each in listed]


def behind(store: Store, fingerprints: Iterable[str]) -> Iterator[Artifact]:
    """Yields the artifacts of these fingerprints and all that they were made from, as their manifests say.

    Each comes once, the nearest first, as far as this machine has it.
    """
    manifests = store.artifacts.glob(f"[!.]*/{MANIFEST}")
    folders = {manifest.parent.name.rpartition("-")[2]: manifest.parent for manifest in manifests}
    waiting = list(fingerprints)
    for fingerprint in waiting:
        if folder := folders.pop(fingerprint, None):
            artifact = Artifact(folder)
            waiting += inputs_of(artifact.manifest)
            yield artifact


@cache
def source_sha256(root: Path = ROOT) -> str:
    """Returns the hexadecimal sha256 of the modules' and templates' names and contents, computed once per process."""
    digest = hashlib.sha256()
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*") if path.suffix in SUFFIXES):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
