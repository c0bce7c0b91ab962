"""The DAG: stages, and their steps, whose names are known before they run.

    learn = Stage("vocabulary.learn", vocabulary.learn, Vocabulary)
    step = learn("vocabulary en-de", corpus_step, VocabularySettings())     # a Step[Vocabulary]

A step's name is a fingerprint of its stage's name and version, its settings and its inputs' fingerprints. The names
show which steps are cached and which must run. Changing a setting reruns only the steps that depend on it.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar

from pipeline.errors import UserError
from pipeline.settings import Settings, differing
from pipeline.store.artifact import MANIFEST, Artifact, content_sha256
from pipeline.store.store import Store
from workflows.requirements import OURS, ROOT

SUFFIXES = {".py", ".toml", ".j2", ".js", ".css"}

A = TypeVar("A", bound=Artifact)
A_co = TypeVar("A_co", bound=Artifact, covariant=True)


@dataclass(frozen=True)
class Imported:
    """A function imported on its first call, so that naming it does not load its libraries."""

    name: str
    """Module and function in entry point syntax, e.g. `pipeline.training.on_ray:train`."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Calls the function and returns its result."""
        return resolve_name(self.name)(*arguments, **named)


@dataclass(frozen=True)
class Stage(Generic[A_co]):
    """A kind of step: a function from (context, artifacts, settings) to one artifact.

    Raise `version` when the function's output changes for the same input. Editing, renaming or moving the function
    changes no fingerprint.
    """

    name: str
    """E.g. `vocabulary.learn`. It is part of every fingerprint, so it must not change if the function moves. The part
    before the dot is the prefix of the steps' folders."""
    function: Callable[..., A_co]
    makes: type[A_co]
    version: int = 1
    cpus: float = 1
    """CPUs that the step reserves; 0 if it only waits for other Ray work, or is done before a run would free one."""
    gpus: float = 0
    """The share of a GPU that it waits for; in a cluster without GPUs, it uses its CPUs."""
    computes: bool = False
    """Whether it runs in a process like a training worker's (`pipeline.environment`), which may have imported torch
    already. For stages that import torch and follow a training run."""
    resumes: bool = False
    """Whether it continues from the files that a killed process left (`pipeline.parts`)."""
    trains: bool = False
    """Whether it is a training run: it continues from its checkpoints, even if published, and runs on the head node."""
    follows_source: bool = False
    """Whether it reruns after any change to the project's source. For tables, which take a second and must never be
    older than the code and the paper's numbers behind them."""

    @property
    def short_name(self) -> str:
        """The part of the name before the dot: its name in options and the prefix of its folders."""
        return self.name.partition(".")[0]

    def __call__(self, label: str, *arguments: Any) -> "Step[A_co]":
        """Returns a step of the DAG. Arguments are steps, settings, plain values, or lists and dataclasses of these."""
        return Step(label, self, arguments)


@dataclass(frozen=True, eq=False)
class Step(Generic[A_co]):
    """A handle on a stage's future artifact. Passing it to another stage adds an edge to the DAG."""

    label: str
    """The step's name on the screen, e.g. `train en-de base`."""
    stage: Stage[A_co]
    arguments: tuple[Any, ...]
    out: Path | None = None
    """The folder a single stage publishes to; None for the folder in the store named by the fingerprint."""

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
        return self.stage.trains or any(needed.is_trained for needed in self.inputs)

    def check_artifacts(self) -> None:
        """Raises UserError if an artifact passed directly as an argument, as to single stages, is damaged."""
        for artifact in _instances(self.arguments, Artifact):
            artifact.check()

    def is_published(self, store: Store) -> bool:
        """Whether the artifact is published. Raises UserError if `out` was built with other settings."""
        if store.find(self.name) is None:
            return False
        if self.out:
            manifest = self.published(store, records=True).manifest
            if manifest.get("fingerprint") != self.fingerprint:
                differing = ", ".join(self.differing(manifest)) or "other text or by another version"
                raise UserError(f"{self.out} was built with {differing}; move it elsewhere or choose another folder")
        return True

    def differing(self, manifest: Mapping[str, Any]) -> Iterator[str]:
        """Yields the settings of a manifest's artifact that differ from the step's."""
        here = [argument for argument in self.arguments if isinstance(argument, Settings)]
        for there, settings in zip(manifest.get("settings", ()), here, strict=False):
            # Text is identified by its content, which is not among a manifest's settings.
            now = settings.identity() if type(settings).identity is Settings.identity else {}
            for name, (value, ours) in differing(there, now).items():
                yield f"{name} {value} (here {ours})"

    def published(self, store: Store, *, records: bool = False) -> A_co:
        """Returns the artifact of a step that has run, on this machine, or at least its `records` (`Store.fetch`)."""
        return self.stage.makes(store.fetch(self.name, records=records))

    def damage(self, store: Store) -> str | None:
        """Returns the damage to the published artifact's files (`Store.damage`), or None.

        Raises UserError if the damaged folder is `out`, which only its owner may move, or has other settings.
        """
        if self.out and self.out.is_dir() and not (self.out / MANIFEST).exists():
            raise UserError(f"{self.out} was not created by this command; choose another folder")
        damage = store.damage(self.name)
        if damage and self.out:
            raise UserError(f"{self.out} is damaged: {damage}; move it elsewhere or choose another folder")
        self.is_published(store)
        return damage


def resolved(value: Any, artifact_of: Callable[[Step[Any]], Artifact]) -> Any:
    """Replaces steps by artifacts at any depth of tuples, lists and dataclasses in `value`."""
    if isinstance(value, Step):
        return artifact_of(value)
    if isinstance(value, tuple | list):
        return type(value)(resolved(item, artifact_of) for item in value)
    if any(True for _ in _instances(value, Step)):
        parts = {field.name: resolved(getattr(value, field.name), artifact_of) for field in fields(value)}
        return replace(value, **parts)
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

    A step for which `follow` returns False is left out, along with steps that only it needs.
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


def inputs_now(step: Step[Artifact], find: Callable[[str], Mapping[str, Any] | None]) -> list[dict[str, str]]:
    """Returns a step's published inputs as its manifest lists them: label, fingerprint, and sha256 of the content."""
    found = [(needed.label, needed.fingerprint, find(needed.name)) for needed in step.inputs]
    for artifact in _instances(step.arguments, Artifact):
        if known := artifact.manifest if (artifact.folder / MANIFEST).exists() else None:
            found.append((known.get("label", artifact.folder.name), _describe(artifact), known))
    return [
        {"label": label, "fingerprint": fingerprint, "sha256": content_sha256(manifest)}
        for label, fingerprint, manifest in found
        if manifest
    ]


def inputs_of(manifest: Mapping[str, Any]) -> list[str]:
    """Returns the fingerprints of an artifact's inputs, in the order of its manifest."""
    return [each["fingerprint"] for each in manifest.get("inputs", [])]


def outdated(manifest: Mapping[str, Any], inputs: Iterable[Mapping[str, str]]) -> str | None:
    """Returns the label of an input of which an artifact used other content than it has now (`inputs_now`), or None."""
    now = {each["fingerprint"]: each["sha256"] for each in inputs}
    used = (each for each in manifest.get("inputs", []) if "sha256" in each and each["fingerprint"] in now)
    return next((each["label"] for each in used if each["sha256"] != now[each["fingerprint"]]), None)


def behind(store: Store, fingerprints: Iterable[str]) -> Iterator[Artifact]:
    """Yields the artifacts of these fingerprints and, by their manifests, all their inputs and inputs' inputs.

    Each appears once, nearest first. Those missing in the store are skipped.
    """
    names = {name.rpartition("-")[2]: name for name in store.names()}
    waiting = list(fingerprints)
    for fingerprint in waiting:
        if name := names.pop(fingerprint, None):
            artifact = Artifact(store.fetch(name, records=True))
            waiting += inputs_of(artifact.manifest)
            yield artifact


@cache
def source_sha256() -> str:
    """Returns the hexadecimal sha256 of all modules, data and templates with their names, computed once per process."""
    digest = hashlib.sha256()
    for path in sorted(path for package in OURS for path in (ROOT / package).rglob("*") if path.suffix in SUFFIXES):
        digest.update(f"{path.relative_to(ROOT).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
