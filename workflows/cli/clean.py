"""`aiayn clean`: deletes from a store what the tables that have names were not made from."""

import time
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
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without it, nothing is changed.")] = False,
) -> None:
    """List what no run in a folder of output has a name for or was made from; with --yes, delete it.

    To give up a run, remove its folder first, e.g. `rm -r runs/table2/embedded/1`. MLflow's database and its model
    files (mlartifacts) are left alone.
    """
    where = store_at(store)
    if not where.is_shared:
        raise UserError(f"--store {store}: only folders can be cleaned; this machine's copies are in {where.root}")
    shown = plan(where)
    sizes_bytes = {folder.name: size_bytes(where.folder(folder.name)) for folder in shown.folders}
    if shown.in_the_way and yes:
        raise UserError(shown.in_the_way)
    if not shown.folders:
        console.print(f"nothing to delete in {store}", highlight=False, soft_wrap=True)
        return
    console.print(_table(shown, sizes_bytes))
    if not yes:
        console.print(f"\nwould free {_total(shown, sizes_bytes)}; --yes deletes them", highlight=False, soft_wrap=True)
        if shown.in_the_way:
            console.print(f"not now: {shown.in_the_way}", highlight=False, soft_wrap=True, markup=False)
        return
    deleted = clean(where, shown)
    console.print(f"\nfreed {_total(deleted, sizes_bytes)}", highlight=False, soft_wrap=True)


def _table(shown: Plan, sizes_bytes: dict[str, int]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("folder", "what it is"):
        table.add_column(heading, header_style="bold", overflow="fold")
    for heading in ("age", "size"):
        table.add_column(heading, header_style="bold", justify="right", no_wrap=True)
    now_s = time.time()
    for folder in shown.folders:
        age = _age(now_s - folder.modified_s)
        table.add_row(folder.name, folder.what, age, filesize.decimal(sizes_bytes[folder.name]))
    return table


def _age(seconds: float) -> str:
    return duration(max(seconds, 0)) if seconds < 2 * DAY_S else f"{seconds / DAY_S:.0f} days"


def _total(listed: Plan, sizes_bytes: dict[str, int]) -> str:
    total_bytes = sum(sizes_bytes[folder.name] for folder in listed.folders)
    return f"{filesize.decimal(total_bytes)} in {len(listed.folders)} folders"
