"""The tables that were made in a folder, as their manifests in the store tell, and how two of them differ.

older, newer = chosen(runs_in(store), None, None)
compare(older, newer).settings
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.store.artifact import MANIFEST
from pipeline.store.store import LocalStore
from workflows.runs.names import NEWEST, TABLE
from workflows.tables.table1 import Table1Artifact
from workflows.tables.table2 import Table2Artifact
from workflows.tables.table3 import Table3Artifact
from workflows.tables.table4 import Table4Artifact
from workflows.tracking.tracker import flatten

TABLES: Mapping[str, type[Any]] = {
    "table1": Table1Artifact,
    "table2": Table2Artifact,
    "table3": Table3Artifact,
    "table4": Table4Artifact,
}
MEASURED = ("scoring", "tree_scores", "perplexity", "costs")
"""The stages whose figures are compared, by their names up to the dot."""


@dataclass(frozen=True)
class Run:
    """A run of a workflow whose table is made."""

    name: str
    """E.g. `table2/embedded/3`."""
    folder: Path
    """The table's folder in the store."""
    manifest: Mapping[str, Any]

    @property
    def ended_s(self) -> float:
        """When the table was made, in seconds since 1970."""
        return datetime.fromisoformat(self.manifest["started"]).timestamp() + float(self.manifest["seconds"])

    @property
    def command(self) -> str:
        """The command that made it, as it was typed (`CommandLine`)."""
        return next((str(each["typed"]) for each in self.manifest["settings"] if "typed" in each), "")

    @property
    def figures(self) -> dict[str, float]:
        """The main figures of the table; none of a table that another version made."""
        try:
            figures: dict[str, float] = TABLES[self.name.partition("/")[0]](self.folder).load().figures()
        except (KeyError, UserError):
            return {}
        return figures

    @cached_property
    def stages(self) -> dict[str, Mapping[str, Any]]:
        """The manifests of all that the table was made from, by label, as far as they are on this machine."""
        found: dict[str, Mapping[str, Any]] = {}
        waiting = [self.manifest]
        while waiting:
            for label, fingerprint in waiting.pop().get("inputs", {}).items():
                for path in self.folder.parent.glob(f"[!.]*-{fingerprint}/{MANIFEST}") if label not in found else ():
                    found[label] = json.loads(path.read_text(encoding="utf-8"))
                    waiting.append(found[label])
        return found


@dataclass(frozen=True)
class Pair:
    """A setting or figure of both runs; None where a run has none."""

    name: str
    one: Any
    other: Any


@dataclass(frozen=True)
class Comparison:
    """What differs, and what was measured."""

    settings: tuple[Pair, ...]
    """Settings and versions of libraries that differ."""
    lonely: tuple[tuple[str, ...], tuple[str, ...]]
    """The labels of stages that only one of the runs has."""
    figures: tuple[Pair, ...]
    """The main figures of the tables, then those of the stages that both have."""


def runs_in(store: LocalStore) -> list[Run]:
    """Returns the runs in a folder whose tables are made, newest first."""
    runs = []
    for link in store.root.glob(f"*/*/*/{TABLE}"):
        manifest = link.with_name(MANIFEST)
        if link.is_symlink() and link.parent.name.isdigit() and manifest.exists():
            name = link.parent.relative_to(store.root).as_posix()
            runs.append(Run(name, manifest.resolve().parent, json.loads(manifest.read_text(encoding="utf-8"))))
    return sorted(runs, key=lambda run: run.ended_s, reverse=True)


def chosen(runs: Sequence[Run], one: str | None, other: str | None) -> tuple[Run, Run]:
    """Returns the two runs to compare: those named, or else the last two, the older one first.

    With one name it is that run beside the last other one. Raises UserError if there are too few, or none of that name.
    """
    named = [run_named(runs, name) for name in (one, other) if name]
    if len(named) == 2:
        return named[0], named[1]
    both = [*[run for run in runs if run not in named][: 2 - len(named)], *named]
    if len(both) < 2:
        raise UserError(f"there are {len(runs)} runs here; comparing takes two (`aiayn runs` lists them)")
    older, newer = sorted(both, key=lambda run: run.ended_s)
    return older, newer


def run_named(runs: Sequence[Run], name: str) -> Run:
    """Returns the run of a name, e.g. `table2/embedded/3`, or the newest of `table2/embedded` or `table2`.

    A name may lack its beginning. Raises UserError if no run has that name.
    """
    wanted = name.strip("/").removesuffix(f"/{NEWEST}")
    for run in runs:
        workflow, profile, _ = run.name.split("/")
        if any(f"/{known}".endswith(f"/{wanted}") for known in (run.name, f"{workflow}/{profile}", workflow)):
            return run
    raise UserError(f"there is no run {name} here; there are {', '.join(run.name for run in runs) or 'none'}")


def compare(one: Run, other: Run) -> Comparison:
    """Compares two runs."""
    figures = list(_pairs("", one.figures, other.figures))
    common = [label for label in one.stages if label in other.stages]
    for label in common:
        if one.stages[label]["stage"].partition(".")[0] in MEASURED:
            figures += _pairs(f"{label} ", _numbers(one.stages[label]), _numbers(other.stages[label]))
    versions = _pairs("", one.manifest["libraries"], other.manifest["libraries"])
    differing = [pair for pair in versions if pair.one != pair.other]
    lonely = (
        tuple(sorted(one.stages.keys() - other.stages.keys())),
        tuple(sorted(other.stages.keys() - one.stages.keys())),
    )
    return Comparison((*_settings(one, other, common), *differing), lonely, tuple(figures))


def _settings(one: Run, other: Run, common: Iterable[str]) -> Iterator[Pair]:
    """Yields the settings that differ; what differs alike in every stage of a kind is named once."""
    by_name: dict[str, dict[str, Pair]] = {}
    for label in common:
        kind = one.stages[label]["stage"].partition(".")[0]
        for pair in _pairs(f"{kind}.", _given(one.stages[label]), _given(other.stages[label])):
            by_name.setdefault(pair.name, {})[label] = pair
    for name, pairs in by_name.items():
        first = next(iter(pairs.values()))
        alike = all(pair == first for pair in pairs.values())
        for label, pair in [("", first)] if alike else pairs.items():
            if pair.one != pair.other:
                yield Pair(f"{label} {name}".strip(), pair.one, pair.other)


def _given(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return flatten({name: value for settings in manifest["settings"] for name, value in settings.items()})


def _numbers(manifest: Mapping[str, Any]) -> dict[str, float]:
    flat = flatten(manifest["figures"])
    return {name: value for name, value in flat.items() if isinstance(value, int | float)}


def _pairs(prefix: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Pair]:
    return (Pair(f"{prefix}{name}", one.get(name), other.get(name)) for name in {**one, **other})
