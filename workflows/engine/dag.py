"""The DAG: stages, the steps made of them, and what each step will be called before anything has run.

    clean = Stage("cleaning.clean", cleaning.clean, Corpus)
    step = clean("clean en-de", corpus_step, CleaningSettings())

A step is named by a fingerprint of its stage's name and version, its settings and its inputs' fingerprints. So what is
cached and what is to run is known at once, and a changed setting reruns the steps behind it and no other.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.settings import Settings
from pipeline.store.artifact import Artifact
from workflows.engine.source import source_sha256


@dataclass(frozen=True)
class Stage:
    """A kind of step: a function from (context, artifacts, settings) to one artifact.

    Raise `version` when the function's output changes for the same input; adding a log line, renaming or moving the
    function changes nothing.
    """

    name: str
    """Names its steps in the store, e.g. `cleaning.clean`: part of every fingerprint, so it stays as it is wherever the
    function moves. The part before the dot begins the names of the steps' folders."""
    function: Callable[..., Artifact]
    makes: type[Artifact]
    version: int = 1
    cpus: float = 1
    """CPUs the step itself reserves; 0 for one that only awaits other Ray work."""
    resumes: bool = False
    """Whether it continues from what an interrupted run of it left."""
    follows_source: bool = False
    """Whether any change of the project's source makes it run again: for tables, which take a second to make and must
    never be older than the code and the paper's numbers they are made from."""

    def __call__(self, label: str, *arguments: Any) -> "Step":
        """A step of the DAG. `arguments` are steps, settings, plain values, or lists and dataclasses of these."""
        return Step(label, self, arguments)


@dataclass(frozen=True, eq=False)
class Step:
    """A handle on what a stage will give; passed to other stages, it is an edge of the DAG."""

    label: str
    """What it is called on the screen, e.g. `train en-de base`."""
    stage: Stage
    arguments: tuple[Any, ...]
    out: Path | None = None
    """Where a single stage publishes; None: in the store, under its fingerprint."""

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that name what comes out."""
        described = [self.stage.name, self.stage.version, _describe(self.arguments)]
        if self.stage.follows_source:
            described.append(source_sha256())
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def inputs(self) -> list["Step"]:
        """The steps among the arguments, in order."""
        found: dict[Step, None] = {}
        substitute(self.arguments, lambda step: found.setdefault(step))
        return list(found)

    def check_given(self) -> None:
        """Raises UserError where an artifact among the arguments, as single stages are given one, is damaged."""
        given: list[Artifact] = []
        substitute(self.arguments, given.append, Artifact)
        for artifact in given:
            artifact.check()

    def folder(self, store: Path) -> Path:
        """Where it is published."""
        return self.out or store / f"{self.stage.name.partition('.')[0]}-{self.fingerprint}"

    def artifact(self, store: Path) -> Artifact | None:
        """What is published already, else None. Raises UserError where `out` holds what other settings made."""
        folder = self.folder(store)
        if not folder.is_dir():
            return None
        artifact = self.stage.makes(folder)
        if self.out and artifact.manifest.get("fingerprint") != self.fingerprint:
            raise UserError(f"{folder} was made from other text or settings; remove it or choose another folder")
        return artifact

    def damage(self, store: Path) -> str | None:
        """What is wrong with the files of the folder that is published; reads all of them (Artifact.damage).

        Raises UserError where that folder is `out`, which is not ours to remove, or holds what other settings made.
        """
        damage = self.stage.makes(self.folder(store)).damage()
        if damage and self.out:
            raise UserError(f"{self.out} is damaged: {damage}; remove it or choose another folder")
        self.artifact(store)
        return damage


def substitute(value: Any, replacement: Callable[[Any], Any], kind: type = Step) -> Any:
    """`value` with each step (or other `kind`) in it, at any depth of tuples, lists and dataclasses, replaced."""
    if isinstance(value, kind):
        return replacement(value)
    if isinstance(value, tuple | list):
        return type(value)(substitute(item, replacement, kind) for item in value)
    if isinstance(value, Step):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        changed = {field.name: substitute(getattr(value, field.name), replacement, kind) for field in fields(value)}
        return replace(value, **changed)
    return value


def _describe(value: Any) -> Any:
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


def in_order(targets: Iterable[Step]) -> list[Step]:
    """`targets` and all they need, each once, inputs first. Steps of the same fingerprint are one."""
    ordered: dict[str, Step] = {}

    def visit(step: Step) -> None:
        if step.fingerprint not in ordered:
            for needed in step.inputs:
                visit(needed)
            ordered[step.fingerprint] = step

    for target in targets:
        visit(target)
    return list(ordered.values())


def to_run(targets: Iterable[Step], store: Path, found: dict[str, str | None] | None = None) -> list[Step]:
    """The steps that must run to get `targets`, inputs first: those not published or damaged, as far as needed.

    `found` is given what was found of each published folder that was read, by fingerprint: its damage, or None; those
    in it already are not read again. Raises UserError where a folder that a single stage was given is damaged.
    """
    found = {} if found is None else found
    needed: dict[str, None] = {}

    def is_whole(step: Step) -> bool:
        if step.fingerprint not in found:
            if not step.folder(store).is_dir():
                return False
            found[step.fingerprint] = step.damage(store)
        return found[step.fingerprint] is None

    def visit(step: Step) -> None:
        step.check_given()
        if step.fingerprint not in needed and not is_whole(step):
            needed[step.fingerprint] = None
            for input_step in step.inputs:
                visit(input_step)

    for target in targets:
        visit(target)
    return [step for step in in_order(targets) if step.fingerprint in needed]
