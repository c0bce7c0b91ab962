"""A run: a folder `runs/<workflow>/<profile>/<number>` with the file `run.json`.

    with begun(store, "table2", "embedded", table, command="...") as run:   # by all workflows, before their steps
        ...
        run.finish(store, artifact, metrics, failures)
    runs_in(store)      # all of them

`run.json` names the artifacts of all steps from the beginning, built or not, so `aiayn clean` keeps them. Beside it are
copies of the table's files, for people, and beside the numbers those of the run that was finished last; `newest` has
its number.
"""

import json
import logging
import os
import re
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ValidationError

from pipeline.errors import UserError, mistakes
from pipeline.store.artifact import MANIFEST, Artifact
from pipeline.store.folders import Inside
from pipeline.store.locks import FileLock, guarded, holder
from pipeline.store.store import Store
from workflows.engine.dag import Step, in_order
from workflows.requirements import ROOT

RUN, NEWEST = "run.json", "newest"
DEFAULT_ROOT = Path("runs")
BUCKET = "bucket"
"""In a folder of local copies, the file with the bucket's address."""
MODEL_STAGES = ("averaging", "parser_choice")
"""Prefixes of models' folders in a store: translators, then parsers."""

logger = logging.getLogger(__name__)


class Record(BaseModel):
    """The content of `run.json`."""

    command: str = ""
    """As typed."""
    commit: str
    host: str
    began: datetime
    """Of the first command, if it was interrupted."""
    ended: datetime | None = None
    status: Literal["running", "finished", "failed", "stopped"] = "running"
    """stopped: by --until. A killed run stays "running" (`Run.status`)."""
    reason: str = ""
    table: Inside
    """The table's folder in the store. It identifies the run."""
    settings: dict[str, Any] = {}
    """Of the text's profile (`Profile.recorded`)."""
    artifacts: dict[str, Inside]
    """Folders in the store by the labels of their steps."""
    seconds: dict[str, float] = {}
    """The durations of finished steps, by label."""
    metrics: dict[str, float] = {}
    """The table's main results."""


@dataclass
class Run:
    """A run with its record."""

    root: Path
    """The store's folder of output, e.g. `runs`."""
    folder: Path
    record: Record
    is_kept: bool = False
    """Whether the record of an earlier command stays, since this one has nothing to build."""

    @classmethod
    def read(cls, root: Path, folder: Path) -> Self:
        """Reads a run. Raises UserError if its record is damaged."""
        try:
            return cls(root, folder, Record.model_validate_json((folder / RUN).read_bytes()))
        except (OSError, ValidationError) as error:
            why = error.strerror if isinstance(error, OSError) else mistakes(error)
            raise UserError(f"{folder / RUN} cannot be read ({why}); rerun its command or remove the folder") from None

    @property
    def name(self) -> str:
        """E.g. `table2/embedded/3`."""
        return self.folder.relative_to(self.root).as_posix()

    @property
    def time(self) -> float:
        """When it ended, or began if it has not, in seconds since 1970."""
        return (self.record.ended or self.record.began).timestamp()

    @property
    def status(self) -> str:
        """The record's status, or "interrupted" if the process that should be running is gone."""
        lost = self.record.status == "running" and holder(self.lock("").path) is None
        return "interrupted" if lost else self.record.status

    def models(self, store: Store) -> dict[str, Path]:
        """Returns the folders of its finished models by name; those that were chosen precede their candidates."""
        artifacts = self.record.artifacts.items()
        found = [each for of in reversed(MODEL_STAGES) for each in artifacts if each[1].startswith(of)]
        return {short_name(label): path for label, name in found if (path := store.find(name))}

    def lock(self, command: str) -> FileLock:
        """Returns the lock that a running command holds."""
        return FileLock(self.root / file_name(self.name), command)

    def save(self, **changes: Any) -> None:
        """Writes the record with these changes."""
        self.record = self.record.model_copy(update=changes)
        write_atomically(self.folder / RUN, f"{self.record.model_dump_json(indent=2)}\n".encode())

    def end(self, store: Store, status: str, reason: str = "", **changes: Any) -> None:
        """Records how the command ended, with the durations of the steps in the store, unless the record is kept."""
        if self.is_kept:
            return
        seconds = dict[str, float]()
        for label, name in self.record.artifacts.items():
            with suppress(OSError, ValueError, KeyError):
                seconds[label] = json.loads((store.folder(name) / MANIFEST).read_text(encoding="utf-8"))["seconds"]
        self.save(status=status, reason=reason, ended=datetime.now(UTC), seconds=seconds, **changes)

    def finish(
        self, store: Store, artifact: Artifact, metrics: Mapping[str, float], failures: Mapping[str, str]
    ) -> None:
        """Records the finished table, and copies its files for people."""
        profile, table = self.folder.parent, {next(reversed(self.record.artifacts)): artifact.folder.name}
        with guarded(self.root / ".locks"):
            reason = "; ".join(f"{name}: {why}" for name, why in failures.items())
            changes = {"artifacts": {**self.record.artifacts, **table}, "metrics": {**metrics}}
            self.is_kept &= self.record.status == "finished"
            self.end(store, "failed" if failures else "finished", reason, **changes)
            for file in artifact.folder.iterdir():
                for copy in (self.folder / file.name, profile / file.name):
                    if copy.is_dir() and not copy.is_symlink():
                        logger.warning("%s is a folder, so it is left as it is", copy)
                    else:
                        write_atomically(copy, file.read_bytes())
            write_atomically(profile / NEWEST, f"{self.folder.name}\n".encode())


@contextmanager
def begun(
    store: Store, workflow: str, profile: str, table: Step[Artifact], *, works: bool = True, **known: Any
) -> Iterator[Run]:
    """Yields the run of a command, of which the record's `known` fields are given; an error of the body fails it.

    A table with a run already keeps it; any other gets the next number. The record of one that has ended changes only
    if the command `works`, which means that it has steps to build.
    """
    run = begin_run(store, workflow, profile, table, works=works, **known)
    with run.lock(run.record.command) as lock:
        lock.take()  # if another process runs the same command, it keeps the lock
        try:
            yield run
        except Exception as error:
            text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            run.end(store, "failed", text)
            raise


def begin_run(
    store: Store, workflow: str, profile: str, table: Step[Artifact], *, works: bool = True, **known: Any
) -> Run:
    """Writes a run's record and returns it."""
    place = store.root / workflow / file_name(profile)
    steps = labelled(table)
    with guarded(store.root / ".locks"):
        numbers, began, run = run_numbers(place), datetime.now(UTC), None
        for number in numbers:
            with suppress(UserError):
                earlier = Run.read(store.root, place / str(number))
                if earlier.record.table == table.name:
                    run, began = earlier, earlier.record.began
        folder = run.folder if run else place / str(1 + max(numbers, default=0))
        folder.mkdir(parents=True, exist_ok=True)
        if run and run.record.ended and not works:
            run.is_kept = True
        else:
            at, names = socket.gethostname(), {label: step.name for label, step in steps.items()}
            now = Record(commit=commit(), host=at, began=began, table=table.name, artifacts=names, **known)
            (run := Run(store.root, folder, now)).save()
        if store.uri:
            (store.root / BUCKET).write_text(store.uri, encoding="utf-8")
    return run


def labelled(table: Step[Artifact]) -> dict[str, Step[Artifact]]:
    """Returns a table and all steps behind it by label, the table last.

    Raises UserError if two steps share a label or two models a name, since each must identify one artifact.
    """
    steps = in_order([table])
    models = [short_name(step.label) for step in steps if step.stage.short_name in MODEL_STAGES]
    for names in ([step.label for step in steps], models):
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise UserError(f"{twice[0]}: two steps have this label, or two models this name; rename a row")
    return {step.label: step for step in steps}


def runs_in(store: Store, damaged: Callable[[UserError], object] = lambda error: None) -> Iterator[Run]:
    """Yields the runs of a store; for one whose record is damaged, `damaged` gets the error."""
    for path in store.root.glob(f"*/*/*/{RUN}"):
        if path.parent.name.isdecimal():
            try:
                yield Run.read(store.root, path.parent)
            except UserError as error:
                damaged(error)


def run_numbers(profile: Path) -> list[int]:
    """Returns the numbers of a profile's runs: that of the one finished last, then the highest first."""
    newest = profile / NEWEST
    last = newest.read_text().strip() if newest.is_file() else ""
    numbers = (int(run.name) for run in profile.glob("*") if run.name.isdecimal())
    return sorted(numbers, key=lambda number: (str(number) == last, number), reverse=True)


def artifacts_of(store: Store, workflow: str, profile: str) -> set[str]:
    """Returns the names of all artifacts of a workflow's runs of a profile."""
    place = store.root / workflow / file_name(profile)
    found = (run for run in runs_in(store) if run.folder.parent == place)
    return {name for run in found for name in run.record.artifacts.values()}


def file_name(text: str) -> str:
    """Turns text into a file name: `en-de A1 seed 1` -> `en-de-A1-seed-1`."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or "-"


def short_name(label: str) -> str:
    """Returns a label without its first word, as a file name: `train en-de base` -> `en-de-base`."""
    return file_name(label.partition(" ")[2] or label)


def commit() -> str:
    """Returns the commit of the source, with "+" if files differ from it; empty outside a repository."""
    try:
        git = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
        return subprocess.run(git, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file, or replaces a file or link of that name."""
    temporary = path.with_name(f".making-{os.getpid()}-{path.name}")
    temporary.write_bytes(content)
    os.replace(temporary, path)
