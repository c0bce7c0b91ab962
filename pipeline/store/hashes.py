"""Hashes of an artifact's files, cached beside its folder so that files are not reread at every use.

`.verified/<name>.json` holds each file's verified sha256 and its stat at that time: size, mtime and ctime in ns, and
inode. Any change alters one of these. The device number is left out, since clients of a file server disagree on it. The
cache is outside the folder, so that copies and listings of an artifact need not exclude it.
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
"""The folder of the cached hashes, beside the artifacts."""
TICK_S = 0.05
"""How long to wait for a tick of the file system's clock, usually 1 to 10 ms."""


def file_sha256(path: Path) -> str:
    """Returns the hexadecimal sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stamp(path: Path) -> list[int]:
    """Returns the fields of a file's stat that change with the file."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def hashes_file(folder: Path) -> Path:
    """Returns the file with the cached hashes of an artifact."""
    folder = folder.resolve()
    return folder.parent / VERIFIED / f"{folder.name}.json"


def known_hashes(folder: Path) -> dict[str, list[Any]]:
    """Returns the cached [*stamp, sha256] of an artifact's files; they may be outdated."""
    try:
        known: dict[str, list[Any]] = dict(json.loads(hashes_file(folder).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}
    return known


def remember(folder: Path, hashed: Mapping[str, list[Any]]) -> None:
    """Caches [*stamp, sha256] of an artifact's files.

    Skips a file whose stamp might not show its next change, because the file system's clock has not ticked since the
    last one. Does nothing if nothing can be written or the artifact is in no store (a folder that a user chose). May
    lose entries that another process adds concurrently.
    """
    if not hashed:
        return
    with suppress(OSError):
        record, began_s = hashes_file(folder), time.monotonic()
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
