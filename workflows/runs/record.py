"""The record of a command that ran a workflow: what was asked for, how far it got, and what came out.

    for record in read_records(store):      # newest first
        print(record.run, record.state)

The records are the JSON files `runs/store/records/<id>.json`. The command writes its own as it goes
(`workflows.runs.recorder`), each time by one rename, and holds the lock of that name as long as it lives. So a record
that says "running" and whose lock nobody holds is that of a command which was killed; it is read as "interrupted".
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from pipeline.store.store import Store

RECORDS = "records"
State = Literal["running", "finished", "failed", "interrupted"]
StepState = Literal["cached", "waiting", "running", "finished", "failed", "stopped"]
"""cached: found in the store when the command began; stopped: by a scheduler, or with the command."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StepRecord:
    """A step of the DAG. Times are in seconds since 1970."""

    label: str
    """Its name on the screen, e.g. `train en-de base`."""
    stage: str
    """e.g. `training.train`."""
    folder: str
    """Its name in the store. Until it is published, what it writes is in the folder that `Store.scratch` returns."""
    inputs: tuple[str, ...]
    """The folders of the steps it depends on."""
    state: StepState
    started: float | None = None
    ended: float | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    """The last progress: {"done": 3, "total": 9, "unit": "updates", ...}."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """The last of each figure that it has posted, and "step", the update of the last."""
    summary: str = ""
    """A few words about what it made."""


@dataclass(frozen=True)
class ModelRecord:
    """A model of the workflow."""

    name: str
    settings: Mapping[str, Any]
    """The settings of every step behind it, flattened, but for those that all models of the workflow share."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What was measured, by its names in MLflow; empty until then."""
    state: Literal["", "measured", "failed", "stopped"] = ""


@dataclass(frozen=True)
class Record:
    """One command. Times are in seconds since 1970, by the clock of its host."""

    id: str
    run: str
    """The run's name, e.g. `table2/embedded/3`. Commands that ask for the same continue the same run."""
    workflow: str
    """e.g. `table2`."""
    profile: str
    data: str
    """The text, in a few words."""
    fingerprint: str
    """That of the step that makes the table from all models; the same for every command of a run."""
    command: str
    """The command, ready to be pasted in `directory`."""
    directory: str
    overrides: str
    """The options that change settings, as given."""
    model_command: str
    """What `aiayn` does with its models: translate or parse; empty if there are none."""
    settings: Mapping[str, Any]
    """The settings that all models share, flattened, and those of the workflow itself."""
    models: tuple[ModelRecord, ...]
    commit: str
    """The git commit of the source, with a `+` if tracked files differ from it; empty if unknown."""
    libraries: Mapping[str, str]
    host: str
    pid: int
    started: float
    updated: float
    state: State
    steps: tuple[StepRecord, ...]
    """All steps of the DAG, inputs first."""
    ended: float | None = None
    failed_step: str = ""
    """The label of the step whose error ended the command, if it was one."""
    error: str = ""
    """The error in one line."""
    table: str = ""
    """The table's folder in the store, once it is made."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """The main figures of the table."""

    @property
    def seconds(self) -> float:
        """The time from the start to the end, or to the last sign of life."""
        return (self.ended or self.updated) - self.started

    def count(self, *states: StepState) -> int:
        """Returns the number of steps in any of `states`."""
        return sum(step.state in states for step in self.steps)


@dataclass(frozen=True)
class Run:
    """All commands that asked for the same."""

    records: tuple[Record, ...]
    """Newest first."""

    @property
    def name(self) -> str:
        """Its name, e.g. `table2/embedded/3`."""
        return self.newest.run

    @property
    def newest(self) -> Record:
        """The record of the newest command."""
        return self.records[0]

    @property
    def measured(self) -> Record:
        """The record of the newest command that made the table, or of the newest."""
        return next((record for record in self.records if record.table), self.newest)

    @property
    def seconds(self) -> float:
        """The time that all its commands took."""
        return sum(record.seconds for record in self.records)

    @property
    def where(self) -> str:
        """Where it stopped: the step that failed, or those that were under way; empty if it did not stop."""
        newest = self.newest
        if newest.state in ("finished", "running"):
            return ""
        return newest.failed_step or ", ".join(step.label for step in newest.steps if step.state == "stopped")


def runs_of(records: Iterable[Record]) -> list[Run]:
    """Groups records, which are sorted newest first, by their runs; the run with the newest command comes first."""
    grouped: dict[str, list[Record]] = {}
    for record in records:
        grouped.setdefault(record.run, []).append(record)
    return [Run(tuple(of_run)) for of_run in grouped.values()]


@cache
def _adapter() -> TypeAdapter[Record]:
    return TypeAdapter(Record)


def write_record(store: Store, record: Record) -> None:
    """Stores a record, replacing its earlier state."""
    store.write_record(record_name(record.id), _adapter().dump_python(record, mode="json"))


def read_records(store: Store) -> list[Record]:
    """Returns the records of all commands, newest first; one that cannot be read is left out, with a warning."""
    found = []
    for name in store.record_names(RECORDS):
        try:
            record = _adapter().validate_python(store.read_record(f"{RECORDS}/{name}"))
        except ValidationError:
            logger.warning("the record %s of a run cannot be read; the list goes on without it", name)
            continue
        found.append(_as_seen(store, record))
    return sorted(found, key=lambda record: (record.started, record.id), reverse=True)


def record_name(id_: str) -> str:
    """Returns the name of a record in the store, which is also that of its lock."""
    return f"{RECORDS}/{id_}"


def _as_seen(store: Store, record: Record) -> Record:
    """Returns a record as it is: a command that says that it runs, but no longer holds its lock, was interrupted."""
    if record.state != "running" or store.owner(record_name(record.id)):
        return record
    steps = (replace(step, state="stopped") if step.state == "running" else step for step in record.steps)
    return replace(record, state="interrupted", steps=tuple(steps))
