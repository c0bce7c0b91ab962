"""`metrics.jsonl`: one JSON line for each report of a training, which goes on after an interruption."""

import json
import logging
import os
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"
log = logging.getLogger(__name__)


def read_line(line: bytes | str) -> dict[str, Any] | None:
    """Returns the content of a line of metrics.jsonl, None if it is damaged or half-written."""
    try:
        content = json.loads(line)
    except ValueError:
        return None
    return content if isinstance(content, dict) and isinstance(content.get("update"), int) else None


def cut_metrics(path: Path, update: int) -> None:
    """Drops the lines of metrics.jsonl after `update`, which will be written again, and any half-written line.

    Lines before it that cannot be read are dropped with a warning.
    """
    if not path.exists():
        return
    kept, damaged = [], []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        content = read_line(line)
        if content is None:
            damaged += [number] if number < len(lines) else []  # the last line is empty, or half of one
        elif content["update"] <= update:
            kept.append(line + b"\n")
    if damaged:
        log.warning("%s: dropped damaged lines %s", path, ", ".join(map(str, damaged)))
    aside = path.with_suffix(".making")
    aside.write_bytes(b"".join(kept))
    os.replace(aside, path)
