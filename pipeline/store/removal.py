"""Deletes folders from a store that other processes may be using.

    with guarded(store.artifacts / ".locks"):       # no process can start building an artifact
        hidden = hide(store, names)                 # from here on, no process finds them
    for folder in hidden:
        remove(folder)                              # may take long

Folders are renamed before deletion, so nobody finds a partial artifact. `leftovers` lists folders renamed but not
deleted by a killed process.
"""

import json
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import UserError
from pipeline.store.artifact import MANIFEST
from pipeline.store.folders import ASIDE_PREFIX, BUILD_PREFIX, PULLING_PREFIX, RECORDS_PREFIX
from pipeline.store.hashes import VERIFIED, hashes_file
from pipeline.store.locks import Owner, holder
from pipeline.store.store import Store

DELETED = ".deleted-"
"""Prefix of folders about to be deleted."""
ERROR_PREFIX = ".error-"
"""Prefix of the files with the traceback of a step that failed. Its next success removes it."""


@dataclass(frozen=True)
class Unneeded:
    """An unused folder of the store."""

    name: str
    what: str
    size_bytes: int
    modified_s: float | None = None
    """Seconds since 1970; None if it is in a bucket."""


def owners(store: Store) -> dict[str, Owner]:
    """Returns the living owners of the store's locks, by artifact name."""
    owners = {path.stem: holder(path) for path in (store.artifacts / ".locks").glob("*.lock")}
    return {name: owner for name, owner in owners.items() if owner}


def published(store: Store) -> list[str]:
    """Returns the names of all artifacts in the store."""
    return [name for name in _folders(store) if not name.startswith(".") and (store.folder(name) / MANIFEST).is_file()]


def unfinished(store: Store) -> list[str]:
    """Returns the names of build folders, of damaged artifacts set aside, of tracebacks, and of workspaces.

    `lock_name` returns the lock of their builder.
    """
    hidden = [name for name in _folders(store) if name.startswith(".") and not name.startswith(DELETED)]
    return [name for name in hidden if name not in (".locks", VERIFIED)]


def leftovers(store: Store) -> list[str]:
    """Returns the names of folders whose deletion was interrupted."""
    return [name for name in _folders(store) if name.startswith(DELETED)]


def lock_name(name: str) -> str:
    """Returns the name of the lock that the builder of a folder holds: the artifact's, or a workspace's own."""
    if name.startswith(ASIDE_PREFIX):
        return name.removeprefix(ASIDE_PREFIX).rpartition("-")[0]
    if name.startswith(ERROR_PREFIX):
        return name.removeprefix(ERROR_PREFIX).removesuffix(".txt")
    return name.removeprefix(BUILD_PREFIX).removeprefix(PULLING_PREFIX).removeprefix(RECORDS_PREFIX)


def size_bytes(folder: Path) -> int:
    """Returns the total size of a folder's files, ignoring those deleted meanwhile."""
    total = 0
    for parent, _, files in os.walk(folder):
        for file in files:
            with suppress(FileNotFoundError):
                total += Path(parent, file).lstat().st_size
    return total


def copies(store: Store) -> list[Unneeded]:
    """Returns what a store in a bucket does not need: the folders of this machine that no process uses and whose
    artifacts the bucket has, and what nobody reads in the bucket."""
    used = owners(store)
    here = [
        described(store, name)
        for name in (*published(store), *unfinished(store))
        if not {name, name.removeprefix(PULLING_PREFIX), lock_name(name)} & used.keys() and store.find(lock_name(name))
    ]
    left = store.mirror.orphans() if store.mirror else {}
    return [*here, *(Unneeded(place, "left in the bucket", size_bytes) for place, size_bytes in left.items())]


def described(store: Store, name: str) -> Unneeded:
    """Describes a folder of the store."""
    folder, artifact = store.folder(name), lock_name(name)
    label = artifact.rpartition("-")[0].lstrip(".")
    with suppress(OSError, ValueError, KeyError, TypeError):
        label = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["label"]
    words = {
        DELETED: "left by an interrupted cleaning",
        ASIDE_PREFIX: f"{label}, set aside as damaged",
        ERROR_PREFIX: f"traceback of {label}",
        BUILD_PREFIX: f"partial {label}",
        **({"": f"copy of {label}"} if store.uri else {}),
        ".": f"files of {label.partition('-')[0]}, left by a killed command",
    }
    label = next((text for prefix, text in words.items() if name.startswith(prefix)), label)
    return Unneeded(name, label, size_bytes(folder), folder.stat().st_mtime)


def hide(store: Store, names: Iterable[str]) -> list[Path]:
    """Renames folders to be deleted, which hides them; returns the new paths. Raises UserError if it is denied."""
    moved = []
    for name in names:
        folder = store.folder(name)
        hidden = folder if name.startswith(DELETED) else folder.with_name(f"{DELETED}{name}-{secrets.token_hex(4)}")
        try:
            os.rename(folder, hidden)
        except OSError as error:
            raise UserError(f"{folder} cannot be renamed ({error.strerror})") from None
        with suppress(OSError):  # cached hashes are small, and useless without the folder
            hashes_file(folder).unlink(missing_ok=True)
        moved.append(hidden)
    return moved


def _folders(store: Store) -> list[str]:
    if not store.artifacts.is_dir():
        return []
    entries = [entry for entry in os.scandir(store.artifacts) if not entry.is_symlink()]
    return sorted(entry.name for entry in entries if entry.is_dir() or ERROR_PREFIX in entry.name)
