"""`aiayn clean`: deletes the artifacts of a store that no run uses.

    shown = plan(store)             # changes nothing
    deleted = clean(store, shown)

A run's record names all artifacts of its workflow from the beginning, built or not (`workflows.runs`). Recording and
locking wait while folders are renamed. So a workflow that begins before a cleaning keeps everything it will find, and
one that begins after it rebuilds deleted artifacts.

Of a store in a bucket, the copies on this machine go, which can be pulled again, and what nobody reads in the bucket:
whether a run of another machine uses an artifact there is not known here.
"""

import time
from collections.abc import Sequence
from typing import Annotated

import typer
from rich import filesize
from rich.table import Column, Table

from pipeline.errors import UserError
from pipeline.store import removal
from pipeline.store.folders import remove
from pipeline.store.locks import guarded
from pipeline.store.removal import Unneeded, lock_name
from pipeline.store.store import Store
from workflows.cli.console import console, say
from workflows.cli.options import StoreOption
from workflows.engine.dag import behind
from workflows.names import names_into
from workflows.quantities import duration


def plan(store: Store) -> list[Unneeded]:
    """Returns the folders that no run uses, directly or as an input.

    Artifacts being built stay, and of used artifacts also partial builds, and damaged copies set aside until they are
    rebuilt. Raises UserError if there is no store, or if a process is building an artifact that no run uses.
    """
    if not store.artifacts.is_dir():
        raise UserError(f"--store {store}: not a store: it has no folder {store.artifacts}; check --store")
    if store.uri:
        return removal.copies(store)
    making, named = removal.owners(store), set(names_into(store))
    needed = named | {artifact.folder.name for artifact in behind(store, (name.rpartition("-")[2] for name in named))}
    for name, owner in making.items():
        if name not in needed and not name.startswith("."):  # a workspace is a named workflow's
            raise UserError(f"{owner} is building {owner.task} here outside any run; clean when it has ended")
    unfinished = removal.unfinished(store)
    partial = [name for name in unfinished if lock_name(name) not in needed or store.find(lock_name(name))]
    unneeded = [name for name in (*removal.published(store), *partial) if name not in {*needed, *making}]
    free = [name for name in unneeded if lock_name(name) not in making]
    return [removal.described(store, name) for name in (*free, *removal.leftovers(store))]


def clean(store: Store, shown: Sequence[Unneeded]) -> list[Unneeded]:
    """Deletes the folders of `shown` that `plan` still returns, and returns them."""
    listed = {folder.name for folder in shown}
    with guarded(store.root / ".locks"), guarded(store.artifacts / ".locks"):
        folders = [folder for folder in plan(store) if folder.name in listed]
        hidden = removal.hide(store, [folder.name for folder in folders if folder.modified_s is not None])
    for place in hidden:
        remove(place)
    for folder in folders:
        if folder.modified_s is None:
            store.bucket.remove_folder(folder.name)
    return folders


def clean_store(
    store: StoreOption = "runs",
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without it, nothing is changed.")] = False,
) -> None:
    """List artifacts that no run uses; --yes deletes them.

    To drop a run, remove its folder first, e.g. `rm -r runs/table2/embedded/1`. MLflow's database and its model files
    (mlartifacts) stay. With a store in a bucket: this machine's copies, and what nobody reads in the bucket.
    """
    where = Store.at(store).checked()
    shown = plan(where)
    if not shown:
        say(f"nothing to delete in {store}")
        return
    texts = (Column(heading, overflow="fold") for heading in ("folder", "content"))
    numbers = (Column(heading, justify="right", no_wrap=True) for heading in ("age", "size"))
    table = Table(*texts, *numbers, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for folder in shown:
        age = "" if folder.modified_s is None else duration(max(time.time() - folder.modified_s, 0))
        table.add_row(folder.name, folder.what, age, filesize.decimal(folder.size_bytes))
    console.print(table)
    deleted = clean(where, shown) if yes else shown
    total = f"{filesize.decimal(sum(folder.size_bytes for folder in deleted))} in {len(deleted)} folders"
    say(f"\nfreed {total}" if yes else f"\nwould free {total}; --yes deletes them")
