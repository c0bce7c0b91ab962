"""Hashes of files, cached until a file's stat changes: reading gigabytes takes minutes.

    sha256 = cached(Path("train.en.gz"), "sha256", file_sha256)

A record is a JSON file with hashes and the stat of the hashed file at that time: size, mtime and ctime in ns, and
inode. Any change alters one of these. The device number is left out, since clients of a file server disagree on it. The
record of an artifact is `.verified/<name>.json`, beside its folder, so that copies and listings of an artifact need not
exclude it; those of a user's large files are in `files/` of the cache folder.
"""

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from pipeline.environment import cache_folder

Value = TypeVar("Value", int, str)

STORE = "store"
"""The folder that holds a store's artifacts."""
VERIFIED = ".verified"
"""The folder of the artifacts' records, beside them."""
TICK_S = 0.05
"""How long to wait for a tick of the file system's clock, usually 1 to 10 ms."""
LARGE_BYTES = 1 << 20
"""A user's smaller files are read each time."""
SETTLED_S = 3.0
"""A user's file is cached only this long after its last change, since FAT's clock ticks every two seconds."""


def file_sha256(path: Path) -> str:
    """Returns the hexadecimal sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cached(path: Path, fact: str, compute: Callable[[Path], Value]) -> Value:
    """Returns `compute(path)` of a user's file, such as its sha256; computed once while the file does not change.

    Change the name of the `fact` whenever `compute` changes: other versions of this package share the cache.
    """
    before: list[int] = stamp(path)
    try:
        key = hashlib.sha256(bytes(path.absolute())).hexdigest()[:32]
        record = cache_folder() / "files" / f"{key}.json"
    except RuntimeError:  # the user has no home
        return compute(path)
    *stamped, value = known_hashes(record).get(fact, [None]) if before[0] >= LARGE_BYTES else [None]
    if stamped == before:
        return cast(Value, value)
    computed = compute(path)
    is_settled = stamp(path) == before and max(before[1:3]) < (time.time() - SETTLED_S) * 1e9
    if is_settled and before[0] >= LARGE_BYTES:
        with suppress(OSError):
            record.parent.mkdir(parents=True, exist_ok=True)
            remember(record, {fact: [*before, computed]})
    return computed


def stamp(path: Path) -> list[int]:
    """Returns the fields of a file's stat that change with the file."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def hashes_file(folder: Path) -> Path:
    """Returns the record of an artifact."""
    folder = folder.resolve()
    return folder.parent / VERIFIED / f"{folder.name}.json"


def known_hashes(record: Path) -> dict[str, list[Any]]:
    """Returns a record's [*stamp, sha256] by file; they may be outdated."""
    try:
        known: dict[str, list[Any]] = dict(json.loads(record.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}
    return known


def remember(record: Path, hashed: Mapping[str, list[Any]]) -> None:
    """Adds [*stamp, sha256] of files to a record.

    Skips a file whose stamp might not show its next change, because the file system's clock has not ticked since the
    last one. Does nothing if nothing can be written or the artifact is in no store (a folder that a user chose). May
    lose entries that another process adds concurrently.
    """
    if not hashed:
        return
    with suppress(OSError):
        began_s = time.monotonic()
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
            aside.write_text(json.dumps({**known_hashes(record), **settled}), encoding="utf-8")
            os.replace(aside, record)
        finally:
            aside.unlink(missing_ok=True)
