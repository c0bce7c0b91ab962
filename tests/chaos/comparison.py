"""Compares the files of finished workflows, ignoring values that depend on the clock."""

import hashlib
import json
from itertools import zip_longest
from pathlib import Path
from typing import Any

CLOCK = ("tokens_s", "flop_s", "mfu", "data_wait_s", "peak_memory_gb", "train_s")
"""Values of metrics.jsonl and tables that differ between any two runs."""
TIMED = {".json", ".jsonl", ".html", ".md", ".csv"}
"""Files with times, of which metrics.jsonl and table2.json are compared, without the times: the others repeat them."""
TABLE = "tabulating"
"""The step whose fingerprint covers the command and, with it, the store."""


def outcome(store: Path) -> dict[str, list[Any]]:
    """Returns what is compared of each published file below `store` (the workflow's `--store`), by its name."""
    files = (path for step in (store / "store").glob("[!.]*-*") for path in step.rglob("*") if path.is_file())
    found = {_name(path.relative_to(store / "store")): _timeless(path) for path in files}
    assert f"{TABLE}/table2.json" in found, f"no table in {store}"
    return found


def differences(expected: dict[str, list[Any]], found: dict[str, list[Any]]) -> list[str]:
    lines = []
    for name in sorted({*expected, *found}):
        if name not in found:
            lines.append(f"{name} is missing")
        elif name not in expected:
            lines.append(f"{name} is unexpected")
        elif expected[name] != found[name]:
            pairs = enumerate(zip_longest(expected[name], found[name]), start=1)
            number, here, there = next((i, a, b) for i, (a, b) in pairs if a != b)
            lines.append(f"{name}, line {number}: {there} instead of {here}")
    return lines


def _name(path: Path) -> str:
    step, *inside = path.parts
    return "/".join([TABLE if step.startswith(f"{TABLE}-") else step, *inside])


def _timeless(path: Path) -> list[Any]:
    match path.name:
        case "metrics.jsonl":
            return [_without_clock(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
        case "table2.json":
            table = json.loads(path.read_text(encoding="utf-8"))
            rows = [{**row, "values": _without_clock(row["values"])} for one in table["tables"] for row in one["rows"]]
            return [*rows, *(each for each in table["differences"] if each["what"] != "training time"), *table["notes"]]
    with path.open("rb") as file:
        return [] if path.suffix in TIMED else [hashlib.file_digest(file, "sha256").hexdigest()]


def _without_clock(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in CLOCK}
