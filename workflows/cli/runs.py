"""`aiayn runs` and `aiayn compare`: the tables made in a folder, from their manifests, and how two of them differ.

older, newer = chosen(runs_in(store), None, None)
compare(older, newer).settings
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from pipeline.errors import UserError
from pipeline.settings import flatten
from pipeline.store.artifact import MANIFEST
from pipeline.store.store import Store
from workflows.claims.table import ClaimsArtifact
from workflows.cli.console import console
from workflows.cli.options import StoreOption
from workflows.engine.dag import behind, inputs_of
from workflows.names import NEWEST, TABLE
from workflows.tables.table1 import Table1Artifact
from workflows.tables.table2 import Table2Artifact
from workflows.tables.table3 import Table3Artifact
from workflows.tables.table4 import Table4Artifact

MAX_FIGURES = 4
TABLES: Mapping[str, type[Any]] = {
    "claims": ClaimsArtifact,
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
    store: Store
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
            return dict(TABLES[self.name.partition("/")[0]](self.folder).load().metrics)
        except (KeyError, UserError):
            return {}

    @cached_property
    def stages(self) -> dict[str, Mapping[str, Any]]:
        """The manifests of all that the table was made from, by label, as far as they are on this machine."""
        manifests = (artifact.manifest for artifact in behind(self.store, inputs_of(self.manifest)))
        return {manifest["label"]: manifest for manifest in manifests}


@dataclass(frozen=True)
class Pair:
    """A setting or figure of both runs; None where a run has none."""

    name: str
    first: Any
    second: Any

    @property
    def differs(self) -> bool:
        """Whether the runs differ in it."""
        return bool(self.first != self.second)


@dataclass(frozen=True)
class Comparison:
    """What differs, and what was measured."""

    settings: tuple[Pair, ...]
    """Settings and versions of libraries that differ."""
    lonely: tuple[tuple[str, ...], tuple[str, ...]]
    """The labels of stages that only one of the runs has."""
    figures: tuple[Pair, ...]
    """The main figures of the tables, then those of the stages that both have."""


def runs_at(uri: str) -> list[Run]:
    """Returns the runs in the store that `--store` names (`runs_in`). Raises UserError if there is no such folder."""
    store = Store.at(uri).checked()
    if not store.exists:
        raise UserError(f"--store {uri}: there is no such folder; python -m workflows.reproduce_table2 makes a table")
    return runs_in(store)


def runs_in(store: Store) -> list[Run]:
    """Returns the runs in a folder whose tables are made, newest first."""
    runs = []
    for link in store.root.glob(f"*/*/*/{TABLE}"):
        manifest = link.with_name(MANIFEST)
        if link.is_symlink() and link.parent.name.isdigit() and manifest.exists():
            name = link.parent.relative_to(store.root).as_posix()
            runs.append(Run(name, store, manifest.resolve().parent, json.loads(manifest.read_text(encoding="utf-8"))))
    return sorted(runs, key=lambda run: run.ended_s, reverse=True)


def chosen(runs: Sequence[Run], first: str | None, second: str | None) -> tuple[Run, Run]:
    """Returns the two runs to compare: those named, or else the last two, the older one first.

    With one name it is that run beside the last other one. Raises UserError if there are too few, or none of that name.
    """
    named = [run_named(runs, name) for name in (first, second) if name]
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


def compare(first: Run, second: Run) -> Comparison:
    """Compares two runs."""
    figures = _pairs("", first.figures, second.figures)
    common = [label for label in first.stages if label in second.stages]
    for label in common:
        if _kind(first.stages[label]) in MEASURED:
            figures += _pairs(f"{label} ", _numbers(first.stages[label]), _numbers(second.stages[label]))
    versions = [pair for pair in _pairs("", first.manifest["libraries"], second.manifest["libraries"]) if pair.differs]
    lonely = (
        tuple(sorted(first.stages.keys() - second.stages.keys())),
        tuple(sorted(second.stages.keys() - first.stages.keys())),
    )
    return Comparison((*_settings(first, second, common), *versions), lonely, tuple(figures))


def _settings(first: Run, second: Run, common: Iterable[str]) -> Iterator[Pair]:
    """Yields the settings that differ; what differs alike in every stage of a kind is named once."""
    by_name: dict[str, dict[str, Pair]] = {}
    for label in common:
        stages = first.stages[label], second.stages[label]
        for pair in _pairs(f"{_kind(stages[0])}.", *map(_settings_of, stages)):
            by_name.setdefault(pair.name, {})[label] = pair
    for name, pairs in by_name.items():
        pair, *others = pairs.values()
        if all(other == pair for other in others):
            pairs = {"": pair}
        for label, pair in pairs.items():
            if pair.differs:
                yield Pair(f"{label} {name}".strip(), pair.first, pair.second)


def _kind(manifest: Mapping[str, Any]) -> str:
    return str(manifest["stage"]).partition(".")[0]


def _settings_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return flatten({name: value for settings in manifest["settings"] for name, value in settings.items()})


def _numbers(manifest: Mapping[str, Any]) -> dict[str, float]:
    flat = flatten(manifest["figures"])
    return {name: value for name, value in flat.items() if isinstance(value, int | float)}


def _pairs(prefix: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Pair]:
    return [Pair(f"{prefix}{name}", first.get(name), second.get(name)) for name in {**first, **second}]


def runs(store: StoreOption = "runs") -> None:
    """List the tables that were made in a folder, newest first, with what was measured."""
    runs = runs_at(store)
    if not runs:
        console.print(f"no tables in {store} yet; python -m workflows.reproduce_table2 makes one", highlight=False)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("run", "made", "measured", "options", "folder"):
        table.add_column(heading, header_style="bold", overflow="fold")
    for run in runs:
        made_at = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.ended_s))
        table.add_row(*map(Text, (run.name, made_at, _headline(run), _options(run), run.folder.name)))
    console.print(table)


def compare_runs(
    first: Annotated[
        str | None, typer.Argument(help="A run, e.g. table2/embedded/1.  [default: the last but one]")
    ] = None,
    second: Annotated[str | None, typer.Argument(help="Another one.  [default: the last]")] = None,
    store: StoreOption = "runs",
) -> None:
    """Show the settings in which two runs differ, and their figures side by side."""
    both = chosen(runs_at(store), first, second)
    compared = compare(*both)
    names = (both[0].name, both[1].name)
    if compared.settings:
        rows = [(pair.name, _value(pair.first), _value(pair.second)) for pair in compared.settings]
        console.print(_table("settings that differ", names, rows))
    else:
        console.print(f"no setting differs between {names[0]} and {names[1]}", highlight=False)
    for name, labels in zip(names, compared.lonely, strict=True):
        if labels:
            console.print(f"\nonly in {name}: {', '.join(labels)}", highlight=False)
    if compared.figures:
        measured = [
            (pair.name, _figure(pair.first), _figure(pair.second), _difference(pair)) for pair in compared.figures
        ]
        console.print()
        console.print(_table("measured", (*names, "difference"), measured, justify="right"))


def _table(
    title: str, names: Sequence[str], rows: Iterable[Sequence[str]], justify: Literal["left", "right"] = "left"
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(title, header_style="bold", overflow="fold")
    for name in names:
        table.add_column(name, header_style="bold", justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _headline(run: Run) -> str:
    shown = [f"{name} {_figure(figure)}" for name, figure in run.figures.items()]
    more = f", {len(shown) - MAX_FIGURES} more" if len(shown) > MAX_FIGURES else ""
    return ", ".join(shown[:MAX_FIGURES]) + more


def _options(run: Run) -> str:
    return run.command.partition(" -m ")[2].partition(" ")[2]


def _value(value: object) -> str:
    return "–" if value is None else str(value)


def _figure(figure: float | None) -> str:
    """Formats a figure as briefly as its size allows: 83.12, 5461, 2.4e+15."""
    if figure is None:
        return "–"
    return f"{figure:.2f}" if abs(figure) < 1000 and figure != int(figure) else f"{figure:.6g}"


def _difference(pair: Pair) -> str:
    if pair.first is None or pair.second is None or not pair.differs:
        return ""
    difference = _figure(pair.second - pair.first)
    return difference if difference.startswith("-") else f"+{difference}"
