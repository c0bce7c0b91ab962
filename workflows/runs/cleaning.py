"""Frees a store: what the newest runs do not need, or what no recorded run refers to.

    found = plan(store, keep_last=2)        # changes nothing
    deleted = clean(store, 2, found)

What a running workflow needs stays: its record says that it runs, and lists its steps. Records are opened, and locks
taken, one process at a time; both wait for the moment in which folders are renamed. So a workflow that begins before
keeps all it will find, and one that begins after makes what is gone anew. Links are removed before the folders that
they lead to, and a run's record after them: whenever the process is killed, the same call finishes the work.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.store.artifact import MANIFEST
from pipeline.store.locks import Owner, guarded
from pipeline.store.removal import (
    ASIDE,
    delete,
    half_made,
    leftovers,
    lock_name,
    locks_closed,
    owners,
    published,
    set_aside,
    silent_s,
)
from pipeline.store.store import LocalStore
from workflows.runs.index import write_index
from workflows.runs.names import remove_links_to, remove_run
from workflows.runs.record import RECORDS, Record, Run, read_records, record_name, runs_of

SILENT_S = 60.0
"""For how long nothing may have been written where nobody says that he is still writing."""
RESUMED = ("training",)
"""The stages, up to the dot, that continue from what an interrupted command has left half-made (`Stage.resumes`)."""


@dataclass(frozen=True)
class Unneeded:
    """A folder of the store that can go."""

    name: str
    what: str
    runs: tuple[str, ...]
    """The runs that it was for."""
    modified_s: float
    """Seconds since 1970."""


@dataclass(frozen=True)
class Plan:
    """What can go."""

    folders: tuple[Unneeded, ...]
    runs: tuple[Run, ...]
    """With their names, their records, and their places in the list."""
    in_the_way: str = ""
    """Says who is making something while what they need is in no record; then nothing can go."""


def plan(store: LocalStore, keep_last: int | None) -> Plan:
    """Returns what the newest `keep_last` runs of each workflow and profile do not need, but older ones did.

    The run that was finished last stays as well. With None it is what no recorded run refers to. What is being made
    stays, and so does what a running workflow needs. Raises UserError if there is no store, or a record is unreadable.
    """
    if not store.artifacts.is_dir():
        raise UserError(f"--store {store.root}: there is no store here, since it has no folder {store.artifacts.name}")
    runs = runs_of(_records(store))
    dropped = _older(runs, keep_last) if keep_last else []
    needed = _needed(store, [run for run in runs if run not in dropped])
    making = owners(store)
    there, halves = published(store), half_made(store)
    if keep_last:
        of_dropped = _needed(store, dropped)
        there = [name for name in there if name in of_dropped]
        halves = [name for name in halves if lock_name(name) in of_dropped]
    gone = [name for name in there if name not in needed]
    continued = _continued(store, needed)
    gone += [name for name in halves if lock_name(name) not in continued and not _may_be_in_use(store, name)]
    free = [*(name for name in gone if lock_name(name) not in making), *leftovers(store)]
    return Plan(tuple(_described(store, name, runs) for name in free), tuple(dropped), _in_the_way(making, runs))


def clean(store: LocalStore, keep_last: int | None, shown: Plan) -> Plan:
    """Deletes what `shown` lists, as far as `plan` still returns it, and returns what that was.

    Raises UserError if somebody is making something while what they need is in no record.
    """
    listed = {folder.name for folder in shown.folders}, {run.name for run in shown.runs}
    with guarded(store.folder(RECORDS) / ".locks"), locks_closed(store):
        now = plan(store, keep_last)
        if now.in_the_way:
            raise UserError(now.in_the_way)
        folders = tuple(folder for folder in now.folders if folder.name in listed[0])
        dropped = tuple(run for run in now.runs if run.name in listed[1])
        names = [folder.name for folder in folders]
        for run in dropped:
            remove_run(store, run.records)
        for place in sorted({_place(run) for run in runs_of(_records(store))}):
            remove_links_to(store, place, names)
        aside = set_aside(store, names)
        for record in (record for run in dropped for record in run.records):
            store.folder(f"{record_name(record.id)}.json").unlink(missing_ok=True)
    write_index(store)
    delete(aside)
    return Plan(folders, dropped)


def _records(store: LocalStore) -> list[Record]:
    """Returns all records, newest first. Raises UserError if one is unreadable: what it needs would not be known."""
    names = store.record_names(RECORDS)
    records = read_records(store)
    for name in {*names} - {record.id for record in records}:
        path = store.folder(f"{record_name(name)}.json")
        raise UserError(f"{path} cannot be read, so what its run needs is not known; remove it first")
    return records


def _place(run: Run) -> str:
    return run.name.rpartition("/")[0]


def _older(runs: Sequence[Run], keep_last: int) -> list[Run]:
    """Returns the runs, which are sorted newest first, beyond the newest of each workflow and profile.

    Those that are running are not among them, nor those that were finished last, to which `newest` leads.
    """
    by_place: dict[str, list[Run]] = {}
    for run in runs:
        by_place.setdefault(_place(run), []).append(run)
    older = []
    for of_place in by_place.values():
        last = max(of_place, key=_finished_s)
        older += [
            run for run in of_place[keep_last:] if not _is_running(run) and (run is not last or not _finished_s(run))
        ]
    return older


def _is_running(run: Run) -> bool:
    return any(record.state == "running" for record in run.records)


def _finished_s(run: Run) -> float:
    """Returns when a run was last finished, in seconds since 1970; 0 if it never was."""
    return max((record.ended or 0.0 for record in run.records if record.state == "finished"), default=0.0)


def _needed(store: LocalStore, runs: Iterable[Run]) -> set[str]:
    """Returns the names of all that the runs' records list, and of all that this was made from."""
    found: set[str] = set()
    for record in (record for run in runs for record in run.records):
        found |= {record.table} - {""}
        for step in record.steps:
            found |= {step.folder, *step.inputs}
    by_fingerprint = {name.rpartition("-")[2]: name for name in published(store)}
    to_read = list(found)
    while to_read:
        inputs = _manifest(store.folder(to_read.pop())).get("inputs", {})
        more = {by_fingerprint[one] for one in inputs.values() if one in by_fingerprint} - found
        found |= more
        to_read += more
    return found


def _continued(store: LocalStore, needed: Iterable[str]) -> set[str]:
    """Returns what is needed, is not there, and will be continued from what there is of it."""
    return {name for name in needed if name.rpartition("-")[0] in RESUMED and store.find(name) is None}


def _may_be_in_use(store: LocalStore, name: str) -> bool:
    """Tells whether a single stage that takes no lock, such as `aiayn average`, may be making a half-made folder now.

    Steps of workflows, whose names end in a fingerprint, and workspaces have locks.
    """
    artifact = lock_name(name)
    has_lock = name == artifact or re.fullmatch(r"\w+-[0-9a-f]{16}", artifact)
    return not has_lock and silent_s(store.folder(name)) < SILENT_S


def _in_the_way(making: Mapping[str, Owner], runs: Iterable[Run]) -> str:
    """Says who makes something that is in no running workflow's record; empty if nobody does."""
    records = [record for run in runs for record in run.records if record.state == "running"]
    recorded = {step.folder for record in records for step in record.steps}
    for name, owner in making.items():
        if name not in recorded and not name.startswith("."):  # a workspace is a recorded workflow's
            return f"{owner} is making {owner.task} here, and no record says from what; clean when it has ended"
    return ""


def _described(store: LocalStore, name: str, runs: Iterable[Run]) -> Unneeded:
    """Describes a folder by its manifest or, if it was never finished, by the records."""
    folder, artifact = store.folder(name), lock_name(name)
    users, label = [], ""
    for run in runs:
        steps = [step for record in run.records for step in record.steps if step.folder == artifact]
        if steps or any(record.table == artifact for record in run.records):
            users.append(run.name)
            label = label or next((step.label for step in steps), "")
    label = _manifest(folder).get("label", "") or label or artifact.rpartition("-")[0].lstrip(".")
    if name.startswith(ASIDE):
        label = "left by a cleaning that was interrupted"
    elif name != artifact:
        label = f"half of {label}"
    elif name.startswith("."):
        label = f"files of {label.partition('-')[0]}, left by a killed command"
    return Unneeded(name, label, tuple(users), folder.stat().st_mtime)


def _manifest(folder: Path) -> dict[str, Any]:
    """Returns what an artifact's manifest says; nothing if it cannot be read."""
    with suppress(OSError, ValueError):
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return manifest if isinstance(manifest, dict) else {}
    return {}
