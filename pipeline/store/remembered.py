"""Caches facts about a file, such as its hash, until its stat changes: reading gigabytes takes minutes.

    lines = remembered(Path("train.en.gz"), "sha256", file_sha256, str)

Facts about large files are stored in `files/` of the cache folder, one JSON file each. A file has changed if its
`stamp` has. A file modified in the last seconds is not cached, since its file system's clock may be too coarse to show
another change.
"""

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pipeline.environment import cache_folder
from pipeline.store.hashes import stamp

Value = TypeVar("Value", int, str, list[int])

LARGE_BYTES = 1 << 20
"""Facts about smaller files are cached in this process only."""
SETTLED_S = 3.0
"""A file is cached only this long after its last change; FAT's clock ticks every two seconds."""
_known: dict[tuple[Path, str], tuple[list[int], Any]] = {}
"""Stamp and value of each fact, by path and name."""


def remembered(path: Path, fact: str, compute: Callable[[Path], Value], kind: type[Value]) -> Value:
    """Returns `compute(path)`, cached while the file is unchanged. Raises OSError if the file has no stat.

    Change the name of the `fact` whenever `compute` changes: other versions of this package share the cache. `kind` is
    the type of the value.
    """
    path = path.absolute()
    before = stamp(path)
    stamped, value = _known.get((path, fact)) or _read(path, fact)
    if stamped != before or type(value) is not kind:
        value = compute(path)
        last_change_s = max(path.stat().st_mtime, path.stat().st_ctime)
        if stamp(path) != before or time.time() - last_change_s < SETTLED_S:
            return value
        if before[0] >= LARGE_BYTES:
            _write(path, fact, {"stamp": before, "value": value})
    _known[path, fact] = before, value
    return value


def _record(path: Path, fact: str) -> Path:
    key = hashlib.sha256(f"{fact} {path}".encode(errors="surrogateescape")).hexdigest()[:32]
    return cache_folder() / "files" / f"{key}.json"


def _read(path: Path, fact: str) -> tuple[list[int], Any]:
    try:
        known = json.loads(_record(path, fact).read_text(encoding="utf-8"))
        return known["stamp"], known["value"]
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):  # RuntimeError: the user has no home
        return [], None


def _write(path: Path, fact: str, known: dict[str, Any]) -> None:
    with suppress(OSError, RuntimeError):  # the cache is optional: read-only or full disk, no home
        record = _record(path, fact)
        record.parent.mkdir(parents=True, exist_ok=True)
        aside = record.with_name(f".{record.name}-{secrets.token_hex(4)}")
        aside.write_text(json.dumps(known), encoding="utf-8")
        os.replace(aside, record)
