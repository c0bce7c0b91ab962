"""`aiayn clean`: deletes from a store what the newest runs do not need, or what no recorded run refers to."""

import time
from collections.abc import Sequence
from typing import Annotated

import typer
from rich import filesize
from rich.table import Table

from pipeline.errors import UserError
from pipeline.store.object_store import store_at
from pipeline.store.removal import size_bytes
from workflows.console.command import console
from workflows.console.options import StoreOption
from workflows.console.quantities import duration
from workflows.runs.cleaning import Plan, clean, plan

DAY_S = 24 * 60 * 60


def clean_store(
    store: StoreOption = "runs",
    keep_last: Annotated[
        int | None,
        typer.Option(
            "--keep-last",
            metavar="N",
            min=1,
            help="Keep what the newest N runs of each workflow and profile need; delete what only older runs did.",
        ),
    ] = None,
    unused: Annotated[bool, typer.Option("--unused", help="Delete what no recorded run refers to.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without it, nothing is changed.")] = False,
) -> None:
    """List what can go from a folder of output; with --yes, delete it. What a running workflow needs stays.

    MLflow's database and its model files (mlartifacts) are left alone.
    """
    if (keep_last is None) == (not unused):
        raise UserError("name one of --keep-last N and --unused")
    where = store_at(store)
    if not where.is_shared:
        raise UserError(f"--store {store}: only folders can be cleaned; this machine's copies are in {where.root}")
    found = plan(where, keep_last)
    sizes_bytes = [size_bytes(where.folder(folder.name)) for folder in found.folders]
    if found.in_the_way and yes:
        raise UserError(found.in_the_way)
    if not found.folders and not found.runs:
        console.print(f"nothing to delete in {store}", highlight=False, soft_wrap=True)
        return
    console.print(_table(found, sizes_bytes))
    if not yes:
        console.print(f"\nwould free {_total(found, sizes_bytes)}; --yes deletes them", highlight=False, soft_wrap=True)
        if found.in_the_way:
            console.print(f"not now: {found.in_the_way}", highlight=False, soft_wrap=True, markup=False)
        return
    deleted = clean(where, keep_last, found)
    sizes_of = dict(zip((folder.name for folder in found.folders), sizes_bytes, strict=True))
    freed_bytes = [sizes_of[folder.name] for folder in deleted.folders]
    console.print(f"\nfreed {_total(deleted, freed_bytes)}", highlight=False, soft_wrap=True)
    if skipped := len(found.folders) - len(deleted.folders):
        console.print(f"kept {skipped} that a command has begun to use meanwhile", highlight=False, soft_wrap=True)


def _table(found: Plan, sizes_bytes: Sequence[int]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("folder", "what it is", "of run"):
        table.add_column(heading, header_style="bold", overflow="fold")
    for heading in ("age", "size"):
        table.add_column(heading, header_style="bold", justify="right", no_wrap=True)
    now_s = time.time()
    for folder, n_bytes in zip(found.folders, sizes_bytes, strict=True):
        runs, age = ", ".join(folder.runs) or "–", _age(now_s - folder.modified_s)
        table.add_row(folder.name, folder.what, runs, age, filesize.decimal(n_bytes))
    for run in found.runs:
        table.add_row(f"{run.name}/", "names and records of the run", run.name, _age(now_s - run.newest.started), "–")
    return table


def _age(seconds: float) -> str:
    return duration(max(seconds, 0)) if seconds < 2 * DAY_S else f"{seconds / DAY_S:.0f} days"


def _total(found: Plan, sizes_bytes: Sequence[int]) -> str:
    return f"{filesize.decimal(sum(sizes_bytes))}: folders: {len(found.folders)}, runs: {len(found.runs)}"
