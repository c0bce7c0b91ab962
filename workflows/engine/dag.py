"""The DAG: stages, the steps made of them, and what each step will be called before anything has run.

    clean = Stage("cleaning.clean", cleaning.clean, Corpus)
    step = clean("clean en-de", corpus_step, CleaningSettings())     # a Step[Corpus]

A step is named by a fingerprint of its stage's name and version, its settings and its inputs' fingerprints. So what is
cached and what is to run is known at once, and a changed setting reruns the steps behind it and no other.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pipeline.errors import UserError
from pipeline.settings import Settings
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from workflows.engine.source import source_sha256

A = TypeVar("A", bound=Artifact)
A_co = TypeVar("A_co", bound=Artifact, covariant=True)


@dataclass(frozen=True)
class Stage(Generic[A_co]):
    """A kind of step: a function from (context, artifacts, settings) to one artifact.

    Raise `version` when the function's output changes for the same input; adding a log line, renaming or moving the
    function changes nothing.
    """

    name: str
    """Names its steps in the store, e.g. `cleaning.clean`: part of every fingerprint, so it stays as it is wherever the
    function moves. The part before the dot begins the names of the steps' folders."""
    function: Callable[..., A_co]
    makes: type[A_co]
    version: int = 1
    cpus: float = 1
    """CPUs the step itself reserves; 0 for one that only awaits other Ray work."""
    resumes: bool = False
    """Whether it continues from what an interrupted run of it left."""
    follows_source: bool = False
    """Whether any change of the project's source makes it run again: for tables, which take a second to make and must
    never be older than the code and the paper's numbers they are made from."""

    def __call__(self, label: str, *arguments: Any) -> "Step[A_co]":
        """Makes a step of the DAG of steps, bundles of steps, settings, plain values, or lists of these."""
        return Step(label, self, arguments)


@dataclass(frozen=True, eq=False)
class Step(Generic[A_co]):
    """A handle on the artifact that a stage will make; passed to other stages, it is an edge of the DAG."""

    label: str
    """Names the step on the screen, e.g. `train en-de base`."""
    stage: Stage[A_co]
    arguments: tuple[Any, ...]
    out: Path | None = None
    """Where a single stage publishes; None: in the store, under its fingerprint."""

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the artifact."""
        described = [self.stage.name, self.stage.version, _describe(self.arguments)]
        if self.stage.follows_source:
            described.append(source_sha256())
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """The artifact's name in a store."""
        return str(self.out or f"{self.stage.name.partition('.')[0]}-{self.fingerprint}")

    @property
    def inputs(self) -> "list[Step[Artifact]]":
        """The steps among the arguments, in order, each once."""
        return list(dict.fromkeys(_given(self.arguments, Step)))

    def check_given(self) -> None:
        """Raises UserError where an artifact among the arguments, as single stages are given one, is damaged."""
        for artifact in _given(self.arguments, Artifact):
            artifact.check()

    def artifact(self, store: Store) -> A_co | None:
        """Returns what is published already, else None. Raises UserError where `out` holds what other settings made."""
        if store.find(self.name) is None:
            return None
        artifact = self.published(store)
        if self.out and artifact.manifest.get("fingerprint") != self.fingerprint:
            raise UserError(f"{self.out} was made from other text or settings; remove it or choose another folder")
        return artifact

    def published(self, store: Store) -> A_co:
        """Returns the artifact of a step that has run."""
        return self.stage.makes(store.fetch(self.name))

    def damage(self, store: Store) -> str | None:
        """Says what is wrong with the files of the published folder; reads all of them (Artifact.damage).

        Raises UserError where that folder is `out`, which is not ours to remove, or holds what other settings made.
        """
        damage = self.published(store).damage()
        if damage and self.out:
            raise UserError(f"{self.out} is damaged: {damage}; remove it or choose another folder")
        self.artifact(store)
        return damage


class ArtifactOf(Protocol):
    """Gives the artifact of a step."""

    def __call__(self, step: Step[A], /) -> A: ...


class StepBundle(ABC):
    """A dataclass of steps and plain values, passed to a stage as one argument."""

    @abstractmethod
    def resolved(self, artifact_of: ArtifactOf) -> object:
        """What the stage receives: the same with artifacts in place of the steps."""


def resolved(value: Any, artifact_of: ArtifactOf) -> Any:
    """`value` with artifacts in place of the steps and bundles in it, at any depth of tuples and lists."""
    if isinstance(value, Step):
        return artifact_of(value)
    if isinstance(value, StepBundle):
        return value.resolved(artifact_of)
    if isinstance(value, tuple | list):
        return type(value)(resolved(item, artifact_of) for item in value)
    return value


def _given(value: Any, kind: type) -> Iterator[Any]:
    """The instances of `kind` in `value`, at any depth of tuples, lists, dictionaries and dataclasses."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _given(item, kind)
    elif isinstance(value, dict):
        yield from _given(list(value.values()), kind)
    elif is_dataclass(value) and not isinstance(value, type | Step):
        for field in fields(value):
            yield from _given(getattr(value, field.name), kind)


def _describe(value: Any) -> Any:
    """What a fingerprint is computed from, as JSON values."""
    if isinstance(value, Step):
        return value.fingerprint
    if isinstance(value, Settings):
        return value.identity()
    if isinstance(value, Artifact):
        return value.manifest.get("fingerprint", str(value.folder))
    if isinstance(value, tuple | list):
        return [_describe(item) for item in value]
    if isinstance(value, dict):
        return {name: _describe(item) for name, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _describe(getattr(value, field.name)) for field in fields(value)}
    return str(value) if isinstance(value, Path) else value


def in_order(targets: Iterable[Step[Artifact]]) -> list[Step[Artifact]]:
    """`targets` and all they need, each once, inputs first. Steps of the same fingerprint are one."""
    ordered: dict[str, Step[Artifact]] = {}

    def visit(step: Step[Artifact]) -> None:
        if step.fingerprint not in ordered:
            for needed in step.inputs:
                visit(needed)
            ordered[step.fingerprint] = step

    for target in targets:
        visit(target)
    return list(ordered.values())


def to_run(
    targets: Iterable[Step[Artifact]], store: Store, found: dict[str, str | None] | None = None
) -> list[Step[Artifact]]:
    """The steps that must run to get `targets`, inputs first: those not published or damaged, as far as needed.

    `found` takes, by fingerprint, the damage of each published folder that was read, None for a whole one; those in it
    already are not read again. Raises UserError where a folder that a single stage was given is damaged.
    """
    found = {} if found is None else found
    needed: dict[str, None] = {}

    def is_whole(step: Step[Artifact]) -> bool:
        if step.fingerprint not in found:
            if store.find(step.name) is None:
                return False
            found[step.fingerprint] = step.damage(store)
        return found[step.fingerprint] is None

    def visit(step: Step[Artifact]) -> None:
        step.check_given()
        if step.fingerprint not in needed and not is_whole(step):
            needed[step.fingerprint] = None
            for input_step in step.inputs:
                visit(input_step)

    for target in targets:
        visit(target)
    return [step for step in in_order(targets) if step.fingerprint in needed]
