"""Reads from manifests which stages made some artifacts: when each ran, how long, from what, with which settings.

records = stages_behind([scores, cost])        # oldest first, each with what it was made from
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.store.artifact import MANIFEST, Artifact


@dataclass(frozen=True)
class StageRecord:
    """A stage as its manifest describes it."""

    label: str
    """Its name in the workflow, e.g. `train en-de base`."""
    stage: str
    version: int
    fingerprint: str
    folder: Path
    started: datetime
    seconds: float
    inputs: Mapping[str, str]
    """The fingerprints of what it was made from, by label."""
    settings: Sequence[Mapping[str, Any]]
    libraries: Mapping[str, str]
    loop_s: float | None = None
    """Of a training, the seconds of its loop; the rest is waiting for workers, starting and ending."""
    peak_memory_bytes: int | None = None

    @property
    def began_s(self) -> float:
        """Seconds since the epoch."""
        return self.started.timestamp()

    @property
    def ended_s(self) -> float:
        """Seconds since the epoch."""
        return self.began_s + self.seconds

    @classmethod
    def read(cls, artifact: Artifact) -> "StageRecord | None":
        """Reads an artifact's manifest; returns None where there is none or it lacks what every stage writes."""
        try:
            manifest = artifact.manifest
            return cls(
                manifest["label"],
                manifest["stage"],
                manifest["version"],
                manifest["fingerprint"],
                artifact.folder,
                datetime.fromisoformat(manifest["started"]),
                float(manifest["seconds"]),
                manifest["inputs"],
                manifest["settings"],
                manifest["libraries"],
                manifest.get("figures", {}).get("loop_s"),
                manifest.get("peak_task_memory_bytes"),
            )
        except (UserError, KeyError, ValueError):
            return None


def stages_behind(made: object) -> list[StageRecord]:
    """Returns the stages that made the artifacts in `made`, and all that these were made from, in the order of time.

    `made` is an artifact, or dataclasses and lists of them at any depth. What a stage was made from is looked for by
    its fingerprint in the folder beside it; what is not there is left out.
    """
    found: dict[str, StageRecord] = {}
    to_read = list(_artifacts(made))
    while to_read:
        artifact = to_read.pop()
        record = StageRecord.read(artifact) if (artifact.folder / MANIFEST).exists() else None
        if record and record.fingerprint not in found:
            found[record.fingerprint] = record
            for fingerprint in record.inputs.values():
                to_read += map(Artifact, artifact.folder.parent.glob(f"[!.]*-{fingerprint}"))
    return sorted(found.values(), key=lambda record: (record.began_s, record.label))


def _artifacts(value: object) -> Iterator[Artifact]:
    if isinstance(value, Artifact):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _artifacts(item)
    elif isinstance(value, Mapping):
        yield from _artifacts(list(value.values()))
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _artifacts(getattr(value, field.name))


def dependents(record: StageRecord, records: Iterable[StageRecord]) -> list[StageRecord]:
    """Returns the stages among `records` that were made from `record`, directly or not, in their order."""
    behind = {record.fingerprint}
    listed = list(records)
    while more := {one.fingerprint for one in listed if behind & {*one.inputs.values()}} - behind:
        behind |= more
    return [one for one in listed if one.fingerprint in behind and one.fingerprint != record.fingerprint]


@dataclass(frozen=True)
class Span:
    """A time in which stages ran without a long pause."""

    began_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.ended_s - self.began_s


LONGEST_PAUSE_S = 60.0
"""A pause in which no stage ran parts two spans if it is longer than this."""


def spans(records: Iterable[StageRecord]) -> list[Span]:
    """Returns the times in which any of the stages ran: several where some were taken from an earlier run."""
    found: list[Span] = []
    for record in sorted(records, key=lambda one: one.began_s):
        if found and record.began_s - found[-1].ended_s <= LONGEST_PAUSE_S:
            found[-1] = Span(found[-1].began_s, max(found[-1].ended_s, record.ended_s))
        else:
            found.append(Span(record.began_s, record.ended_s))
    return found
