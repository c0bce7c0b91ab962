"""The values in Tables 1 to 4 made from the small artifacts of these tests are those stored in `expected.jsonl`.

    AIAYN_EXPECTED=write python -m pytest tests/workflows/tables/test_stored_tables.py

rewrites the stored values where a change to them is meant. Sentences and the paper's values are not among them.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.complexity.figures import CountsArtifact, MeasurementsArtifact
from pipeline.store.artifact import Context, JsonArtifact
from tests.support.html_reader import Reader
from tests.support.tiny_complexity import counts, measurements, theory_s
from workflows.reports import table1, table2, table3, table4
from workflows.tables.measurements import Translation
from workflows.tables.parser_measurements import ParserRow
from workflows.tables.table3 import RowTrainings

EXPECTED = Path(__file__).with_name("expected.jsonl")
"""A line for each table's keys with their formats, for each of its measured rows, and for a page's metrics."""
WARNINGS = ["read en-de: train.en is not the <published> file"]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """A folder for the table, behind which a stage has warned."""
    (tmp_path / "table").mkdir()
    return Context(tmp_path / "table", warnings=WARNINGS)


def assert_as_stored(made: JsonArtifact[Any]) -> None:
    """Compares what is stored; the page lists the warnings."""
    assert WARNINGS[0] in Reader((made.folder / "report.html").read_text(encoding="utf-8")).text
    written = [*stored_of(json.loads((made.folder / made.figures_file).read_text()))]
    all_stored = [json.loads(line) for line in EXPECTED.read_text(encoding="utf-8").splitlines()]
    if os.environ.get("AIAYN_EXPECTED") == "write":
        others = [line for line in all_stored if line[0] != made.figures_file]
        all_stored = sorted([*others, *([made.figures_file, *line] for line in written)], key=lambda line: line[0])
        EXPECTED.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in all_stored))
    assert written == [line for name, *line in all_stored if name == made.figures_file]


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
    """Numbers, whose last digits may depend on the machine, to eight digits, and words such as "not run"."""
    rounded = {key: float(f"{value:.8g}") if isinstance(value, float) else value for key, value in values.items()}
    return {key: value for key, value in rounded.items() if not isinstance(value, str) or value.count(" ") < 2}


def test_table1(context: Context, tmp_path: Path) -> None:
    """Times as in theory, on a made-up machine."""
    counted, measured = CountsArtifact(tmp_path), MeasurementsArtifact(tmp_path)
    counted.write(counts())
    measured.write(measurements(theory_s))
    assert_as_stored(table1.tabulate(context, counted, measured))


def test_table2(context: Context, cell: Callable[..., Translation]) -> None:
    """A cell with word-by-word substitution, another without, and two that were not run."""
    base = cell("en-de", "base")
    with_words = replace(base, word_by_word=base.scores)
    assert_as_stored(table2.tabulate(context, [with_words, cell("en-fr", "big")]))


def test_table3(context: Context, trained_row: Callable[..., RowTrainings]) -> None:
    """Rows of several seeds, one that has not converged, rows without figures, and a user's own."""
    rows = [
        trained_row("base", 7.0, 7.4, errors=(1, 2)),
        trained_row("A1", 8.0, last_fall=0.2),
        RowTrainings("B1", {"d_k": 16}, (), "out of memory"),
        RowTrainings("B2", {"d_k": 32}, ()),
        trained_row("C1", 6.0, errors=(0,), parameters=900_000),
        trained_row("E", 7.1),
        RowTrainings("F1", {"n_layers": 1, "warmup_steps": 9}, trained_row("F1", 6.5).trainings),
    ]
    assert_as_stored(table3.tabulate(context, rows))


def test_table4(context: Context, parser_row: Callable[..., ParserRow]) -> None:
    """One row of three candidates, of which one failed."""
    assert_as_stored(table4.tabulate(context, [parser_row(of_attention=(0.2, 0.0))]))
