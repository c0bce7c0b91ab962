"""`metrics.jsonl`: one JSON line for each report of a training, which goes on after an interruption."""

import json
import os
from pathlib import Path

METRICS = "metrics.jsonl"


def cut_metrics(path: Path, update: int) -> None:
    """Drops the lines of metrics.jsonl after `update`, which will be written again, and any half-written line."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            if json.loads(line)["update"] <= update:
                kept.append(line + "\n")
        except ValueError:
            continue
    aside = path.with_suffix(".making")
    aside.write_text("".join(kept), encoding="utf-8", newline="\n")
    os.replace(aside, path)
