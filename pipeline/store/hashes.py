"""Hashes of an artifact's files, remembered beside its folder, so that a file is read once and not at every use.

`.verified/<name>.json` holds, for each file, the hash that was found right and the stat at that time: size, time of
modification and of change (ctime) in ns, and inode. Any change to a file shows in these. The device is left out, since
the clients of a file server do not agree on it. The record is not in the folder: whatever copies an artifact, or lists
its files, takes all that is there.
"""

import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

STORE = "store"
"""The folder that holds a store's artifacts."""
VERIFIED = ".verified"
"""The folder of the records, beside the artifacts."""
TICK_S = 0.05
"""How long to wait for a tick of a file system's clock; of most it comes every 1 to 10 ms."""


def file_sha256(path: Path) -> str:
    """Returns the hexadecimal sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stamp(path: Path) -> list[int]:
    """Returns what changes in a file's stat with any change to the file."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def record_of(folder: Path) -> Path:
    """Returns the file that remembers the hashes of an artifact."""
    folder = folder.resolve()
    return folder.parent / VERIFIED / f"{folder.name}.json"


def known_hashes(folder: Path) -> dict[str, list[Any]]:
    """Returns the stamp and sha256 of each file of an artifact as far as they are remembered; they may be outdated."""
    try:
        known: dict[str, list[Any]] = dict(json.loads(record_of(folder).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}
    return known


def remember(folder: Path, hashed: Mapping[str, list[Any]]) -> None:
    """Adds files of an artifact, each with its stamp and sha256, to those that are remembered.

    A file whose next change its stamp might not show, since the file system's clock has not ticked since the last one,
    is left out. So are all where nothing can be written or the artifact is in no store, as one in a folder that a user
    chose, and any that another process adds at this moment.
    """
    if not hashed:
        return
    with suppress(OSError):
        record, began_s = record_of(folder), time.monotonic()
        if record.parent.parent.name == STORE:
            record.parent.mkdir(exist_ok=True)
        aside = record.with_name(f".{record.name}-{secrets.token_hex(4)}")
        try:
            aside.touch()
            last_ns = max(ctime_ns for _, _, ctime_ns, *_ in hashed.values())
            while (now_ns := aside.stat().st_ctime_ns) <= last_ns and time.monotonic() - began_s < TICK_S:
                time.sleep(TICK_S / 25)
                aside.touch()
            settled = {name: entry for name, entry in hashed.items() if entry[2] < now_ns}
            aside.write_text(json.dumps({**known_hashes(folder), **settled}), encoding="utf-8")
            os.replace(aside, record)
        finally:
            aside.unlink(missing_ok=True)
