"""The values of Tables 1 to 4, built from these tests' small artifacts, equal those stored in `expected.jsonl`.

    AIAYN_EXPECTED=write python -m pytest tests/workflows/tables/test_stored_tables.py

rewrites the stored values where a change to them is meant. Sentences and the paper's values are not among them.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.store.artifact import JsonArtifact
from tests.support.html_reader import Reader, assert_asks_for_nothing_outside
from tests.workflows.tables.conftest import WARNING

EXPECTED = Path(__file__).with_name("expected.jsonl")
"""A line for each table's keys with their formats, each measured row, and each page's metrics."""


def test_values_are_those_stored(made: JsonArtifact[Any]) -> None:
    page = (made.folder / "report.html").read_text(encoding="utf-8")
    assert_asks_for_nothing_outside(page)
    assert WARNING in Reader(page).text
    written = [*stored_of(json.loads((made.folder / made.record_file).read_text()))]
    all_stored = [json.loads(line) for line in EXPECTED.read_text(encoding="utf-8").splitlines()]
    if os.environ.get("AIAYN_EXPECTED") == "write":
        others = [line for line in all_stored if line[0] != made.record_file]
        all_stored = sorted([*others, *([made.record_file, *line] for line in written)], key=lambda line: line[0])
        EXPECTED.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in all_stored))
    assert written == [line for name, *line in all_stored if name == made.record_file]


def stored_of(results: dict[str, Any]) -> Iterator[list[Any]]:
    """The lines of one page."""
    for number, table in enumerate(results["tables"]):
        yield [number, "columns", {column["key"]: column.get("spec", "") for column in table["columns"]}]
        for row in table["rows"]:
            if row["origin"] != "paper":
                kept = {
                    key: value for key, value in row["values"].items() if not key.endswith((".paper", ".paper_delta"))
                }
                yield [number, row["name"], values_of(kept)]
    yield ["metrics", values_of(results["metrics"])]


def values_of(values: dict[str, Any]) -> dict[str, Any]:
    """Numbers to eight digits, since the last ones may depend on the machine, and texts such as "not run"."""
    rounded = {key: float(f"{value:.8g}") if isinstance(value, float) else value for key, value in values.items()}
    return {key: value for key, value in rounded.items() if not isinstance(value, str) or value.count(" ") < 2}
