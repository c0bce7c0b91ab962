"""Removes folders from a store that other processes may be using.

    with locks_closed(store):                       # no process can start building an artifact meanwhile
        hidden = hide(store, names)                 # from here on no process finds them
    delete(hidden)                                  # takes as long as it takes

Whatever is removed is renamed first, so that nobody ever finds half an artifact. What a killed process has renamed and
not deleted is in `leftovers`.
"""

import os
import secrets
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from pipeline.errors import UserError
from pipeline.store.artifact import MANIFEST
from pipeline.store.hashes import VERIFIED, record_of
from pipeline.store.locks import Owner, guarded, holder
from pipeline.store.scratch import ASIDE, MAKING
from pipeline.store.store import Store

HIDDEN = ".deleted-"
"""Prefix of a folder that is being deleted."""


def locks_closed(store: Store) -> AbstractContextManager[None]:
    """Returns a context in which no process can take the lock on an artifact; its body must be short."""
    return guarded(store.artifacts / ".locks")


def owners(store: Store) -> dict[str, Owner]:
    """Returns the living owners of the store's locks, by what they make."""
    owners = {path.stem: holder(path) for path in (store.artifacts / ".locks").glob("*.lock")}
    return {name: owner for name, owner in owners.items() if owner}


def published(store: Store) -> list[str]:
    """Returns the names of all artifacts in the store."""
    return [name for name in _folders(store) if not name.startswith(".") and (store.folder(name) / MANIFEST).is_file()]


def half_made(store: Store) -> list[str]:
    """Returns the names of the folders in which artifacts are or were being made, of what was set aside for being
    damaged, and of workspaces.

    `lock_name` returns whose lock their maker holds.
    """
    others = (".locks", VERIFIED)
    return [
        name for name in _folders(store) if name.startswith(".") and name not in others and not name.startswith(HIDDEN)
    ]


def leftovers(store: Store) -> list[str]:
    """Returns the names of folders whose deletion was interrupted."""
    return [name for name in _folders(store) if name.startswith(HIDDEN)]


def lock_name(name: str) -> str:
    """Returns the name of the lock that the maker of a folder holds: the artifact's, or a workspace's own."""
    if name.startswith(ASIDE):
        return name.removeprefix(ASIDE).rpartition("-")[0]
    return name.removeprefix(MAKING)


def size_bytes(folder: Path) -> int:
    """Returns the size of all files in a folder; what vanishes meanwhile counts as nothing."""
    total = 0
    for parent, _, files in os.walk(folder):
        for file in files:
            path = Path(parent, file)
            total += path.lstat().st_size if os.path.lexists(path) else 0
    return total


def hide(store: Store, names: Iterable[str]) -> list[Path]:
    """Renames folders that are to be deleted, so that no process finds them, and returns where they are now.

    Raises UserError where the file system does not allow it.
    """
    moved = []
    for name in names:
        folder = store.folder(name)
        hidden = folder if name.startswith(HIDDEN) else folder.with_name(f"{HIDDEN}{name}-{secrets.token_hex(4)}")
        try:
            os.rename(folder, hidden)
        except OSError as error:
            raise UserError(f"{folder} cannot be renamed ({error.strerror})") from None
        with suppress(OSError):  # a record is small, and of no use without the folder
            record_of(folder).unlink(missing_ok=True)
        moved.append(hidden)
    return moved


def delete(folders: Iterable[Path]) -> None:
    """Deletes hidden folders. Raises UserError where the file system does not allow it."""
    for folder in folders:
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:  # another process is deleting it too
            continue
        except OSError as error:
            raise UserError(f"{error.filename} cannot be deleted ({error.strerror})") from None


def _folders(store: Store) -> list[str]:
    if not store.artifacts.is_dir():
        return []
    return sorted(entry.name for entry in os.scandir(store.artifacts) if entry.is_dir(follow_symlinks=False))
