"""`aiayn runs`: the finished tables of a store, from their manifests."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from pipeline.errors import UserError
from pipeline.store.artifact import MANIFEST, read_manifest
from pipeline.store.store import Store
from workflows.cli.console import console, print_error
from workflows.cli.options import StoreOption
from workflows.experiments import EXPERIMENTS
from workflows.names import TABLE

MAX_METRICS = 4


@dataclass(frozen=True)
class Run:
    """A run with a finished table."""

    name: str
    """E.g. `table2/embedded/3`."""
    folder: Path
    """The table's folder in the store."""
    manifest: Mapping[str, Any]

    @property
    def ended_s(self) -> float:
        """When the table was finished, in seconds since 1970."""
        return datetime.fromisoformat(self.manifest["started"]).timestamp() + float(self.manifest["seconds"])

    @property
    def command(self) -> str:
        """The run's command as typed (`CommandLine`)."""
        return next((str(each["typed"]) for each in self.manifest["settings"] if "typed" in each), "")

    @property
    def metrics(self) -> dict[str, float]:
        """The table's main metrics; empty if another version wrote the table."""
        try:
            return dict(EXPERIMENTS[self.name.partition("/")[0]].table(self.folder).load().metrics)
        except (KeyError, UserError):
            return {}


def runs_in(store: Store) -> list[Run]:
    """Returns the runs with finished tables, newest first. A run with a damaged manifest is left out with a warning."""
    runs = []
    for link in store.root.glob(f"*/*/*/{TABLE}"):
        manifest = link.with_name(MANIFEST)
        if link.is_symlink() and link.parent.name.isdigit() and manifest.exists():
            name, folder = link.parent.relative_to(store.root).as_posix(), manifest.resolve().parent
            try:
                runs.append(Run(name, folder, read_manifest(folder)))
            except (OSError, ValueError, KeyError, TypeError) as error:
                print_error(f"{name}: left out, since {manifest.resolve()} cannot be read ({error}); rerun its command")
    return sorted(runs, key=lambda run: run.ended_s, reverse=True)


def runs(store: StoreOption = "runs") -> None:
    """List the finished tables of a store, newest first, with their main metrics."""
    named = Store.at(store).checked()
    if not named.exists:
        raise UserError(f"--store {store}: no such folder; python -m workflows.reproduce_table2 writes a table")
    runs = runs_in(named)
    if not runs:
        console.print(f"no tables in {store} yet; python -m workflows.reproduce_table2 writes one", highlight=False)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("run", "finished", "metrics", "options", "folder"):
        table.add_column(heading, header_style="bold", overflow="fold")
    for run in runs:
        ended_at = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.ended_s))
        options = run.command.partition(" -m ")[2].partition(" ")[2]
        table.add_row(*map(Text, (run.name, ended_at, _headline(run), options, run.folder.name)))
    console.print(table)


def _headline(run: Run) -> str:
    shown = [f"{name} {_brief(value)}" for name, value in run.metrics.items()]
    more = f", {len(shown) - MAX_METRICS} more" if len(shown) > MAX_METRICS else ""
    return ", ".join(shown[:MAX_METRICS]) + more


def _brief(value: float) -> str:
    """Formats a number as briefly as its size allows: 83.12, 5461, 2.4e+15."""
    return f"{value:.2f}" if abs(value) < 1000 and value != int(value) else f"{value:.6g}"
