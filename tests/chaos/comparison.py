"""Compares the results of finished workflows, ignoring values that depend on the clock."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLOCK = ("tokens_s", "train_s")
"""Values of metrics.jsonl that differ between any two runs."""
TIMED = {".json", ".jsonl", ".html", ".md", ".csv"}
"""Files with times. Only metrics.jsonl and table2.json are compared, without the times: the others repeat them."""


TABLE = "tabulating"
"""The step whose fingerprint covers the command and, with it, the store."""


@dataclass(frozen=True)
class Outcome:
    """The results in one store."""

    steps: list[str]
    """The published folders, the table's without its fingerprint."""
    table: dict[str, Any]
    """The content of table2.json without times."""
    curves: dict[str, list[Any]]
    """The lines of each training's metrics.jsonl, without times."""
    sha256: dict[str, str]
    """The hash of every other file: text, vocabularies, token ids, weights, Adam's moments, translations."""
    weights_bytes: int
    """The total size of the model.safetensors files of trainings and averages."""


def outcome(store: Path) -> Outcome:
    """Reads the results in `store` (the workflow's `--store`)."""
    steps = sorted(path for path in (store / "store").glob("[!.]*-*") if path.is_dir())
    (table,) = store.glob(f"store/{TABLE}-*/table2.json")
    files = [path for step in steps for path in sorted(step.rglob("*")) if path.is_file()]
    return Outcome(
        sorted(TABLE if step.name.startswith(f"{TABLE}-") else step.name for step in steps),
        _table_without_times(json.loads(table.read_text())),
        {_name(path, store): _curve(path) for path in files if path.name == "metrics.jsonl"},
        {_name(path, store): _sha256(path) for path in files if path.suffix not in TIMED},
        sum(path.stat().st_size for path in files if path.name == "model.safetensors"),
    )


def differences(expected: Outcome, found: Outcome) -> list[str]:
    """Returns one line for each difference, or nothing if the results are equal."""
    lines = []
    for field in ("steps", "table", "weights_bytes"):
        if getattr(expected, field) != getattr(found, field):
            lines.append(f"{field}: {getattr(found, field)} instead of {getattr(expected, field)}")
    for one, other in ((expected.sha256, found.sha256), (expected.curves, found.curves)):
        for name in sorted({*one, *other}):
            if name not in other:
                lines.append(f"{name} is missing")
            elif name not in one:
                lines.append(f"{name} is unexpected")
            elif one[name] != other[name]:
                lines.append(f"{name} differs{_first_difference(one[name], other[name])}")
    return lines


def _first_difference(expected: Any, found: Any) -> str:
    """Returns the first line in which two curves differ."""
    if isinstance(expected, str):
        return ""
    pairs = zip([*expected, None], [*found, None], strict=False)
    number, expected_line, found_line = next((i, a, b) for i, (a, b) in enumerate(pairs, start=1) if a != b)
    return f" in line {number}: {found_line} instead of {expected_line}"


def _name(path: Path, store: Path) -> str:
    step, *inside = path.relative_to(store / "store").parts
    return "/".join([TABLE if step.startswith(f"{TABLE}-") else step, *inside])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _curve(path: Path) -> list[Any]:
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [{name: value for name, value in json.loads(line).items() if name not in CLOCK} for line in lines]


def _table_without_times(table: dict[str, Any]) -> dict[str, Any]:
    untimed = [difference for difference in table["differences"] if difference["what"] != "training time"]
    return {"tables": table["tables"], "differences": untimed, "notes": table["notes"]}
