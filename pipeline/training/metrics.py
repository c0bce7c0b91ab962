"""`metrics.jsonl`: one JSON line for each report of a training, which goes on after an interruption."""

import json
import logging
import os
from pathlib import Path

METRICS = "metrics.jsonl"
log = logging.getLogger(__name__)


def cut_metrics(path: Path, update: int) -> None:
    """Drops the lines of metrics.jsonl after `update`, which will be written again, and any half-written line.

    Lines before it that cannot be read are dropped with a warning.
    """
    if not path.exists():
        return
    kept, damaged = [], []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            if json.loads(line)["update"] <= update:
                kept.append(line + b"\n")
        except (ValueError, TypeError, KeyError):
            damaged += [number] if number < len(lines) else []  # the last line is empty, or half of one
    if damaged:
        log.warning("%s: dropped damaged lines %s", path, ", ".join(map(str, damaged)))
    aside = path.with_suffix(".making")
    aside.write_bytes(b"".join(kept))
    os.replace(aside, path)
