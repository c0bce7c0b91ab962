"""Tables 1 to 4 from small artifacts: values as in `expected.jsonl`, and everything shown on any terminal and page.

    AIAYN_EXPECTED=write python -m pytest tests/workflows/tables/test_render.py

rewrites the stored values where a change to them is meant. Sentences and the paper's values are not among them.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from pipeline.store.artifact import JsonArtifact
from tests.support.html_reader import Reader, assert_asks_for_nothing_outside
from tests.workflows.tables.conftest import WARNING
from workflows.tables.render import markdown_table, render_markdown, render_terminal, terminal_table
from workflows.tables.table import NAME, Column, Row, Table, columns, in_order

EXPECTED = Path(__file__).with_name("expected.jsonl")
"""A line for each table's keys with their formats, each measured row, and each page's metrics."""
SHOWN = [
    Column(NAME, "row"),
    Column("change", "change"),
    Column("perplexity.paper", "paper", "perplexity", ".2f"),
    Column("perplexity", "here", "perplexity", ".2f", spread="deviation"),
    *columns("paper", "here", block="BLEU", spec=".2f"),
    Column("flop", "FLOP", "training", unit="FLOP", is_measured=True),
]
MEASURED = {"perplexity.paper": 4.92, "perplexity": 7.2, "deviation": 0.281, "BLEU, paper": 25.8, "BLEU, here": 24.1}
NOT_RUN = {"change": "h 1, d_k 512", "perplexity.paper": 5.29, "BLEU, paper": 24.96, "flop": "not run"}
ROWS = [Row("base", "", MEASURED | {"flop": 3.14e12}, {"BLEU, paper": 1}), Row("A1", "", NOT_RUN, group="A")]
SCORES = Table("Scores", SHOWN, ROWS, "Time is not shown.")


def packed(text: str) -> str:
    return " ".join(text.split())


def printed(width: int, *shown: RenderableType) -> list[str]:
    console = Console(width=width)
    with console.capture() as capture:
        for renderable in shown:
            console.print(renderable)
    return [line.rstrip() for line in capture.get().split("\n")]


def test_values_are_those_stored(made: JsonArtifact[Any]) -> None:
    page = (made.folder / "report.html").read_text(encoding="utf-8")
    assert_asks_for_nothing_outside(page)
    assert WARNING in Reader(page).text
    assert re.findall(r'<table class="(\w+)', page)[0] == "result"  # no smaller table stands before it
    written = [*stored_of(json.loads((made.folder / made.record_file).read_text()))]
    all_stored = [json.loads(line) for line in EXPECTED.read_text(encoding="utf-8").splitlines()]
    if os.environ.get("AIAYN_EXPECTED") == "write":
        others = [line for line in all_stored if line[0] != made.record_file]
        all_stored = sorted([*others, *([made.record_file, *line] for line in written)], key=lambda line: line[0])
        EXPECTED.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in all_stored))
    assert written == [line for name, *line in all_stored if name == made.record_file]


def stored_of(results: dict[str, Any]) -> Iterator[list[Any]]:
    for number, table in enumerate(results["tables"]):
        yield [number, "columns", {column["key"]: column.get("spec", "") for column in table["columns"]}]
        for row in table["rows"]:
            if row["origin"] != "paper":
                values = row["values"].items()
                kept = {key: value for key, value in values if not key.endswith((".paper", ".paper_delta"))}
                yield [number, row["name"], values_of(kept)]
    yield ["metrics", values_of(results["metrics"])]


def values_of(values: dict[str, Any]) -> dict[str, Any]:
    """Numbers to eight digits, since the last ones may depend on the machine, and texts such as "not run"."""
    rounded = {key: float(f"{value:.8g}") if isinstance(value, float) else value for key, value in values.items()}
    return {key: value for key, value in rounded.items() if not isinstance(value, str) or value.count(" ") < 2}


@pytest.mark.parametrize("made", [2, 3, 4], indirect=True)
def test_what_generated_text_measures_is_not_comparable(made: JsonArtifact[Any]) -> None:
    """Every view heads it so. The page says first what the run shows; no sentence sets the paper's result beside it."""
    results, heading = made.load(), f"generated {'trees' if '4' in made.record_file else 'text'}, not comparable"
    terminal = "\n".join(printed(140, render_terminal(results, 140, verbose=False)))
    assert (heading if "3" not in made.record_file else " text, not ") in terminal  # in the head of a column
    page = packed(Reader((made.folder / "report.html").read_text(encoding="utf-8")).text)
    assert heading in page
    assert heading in render_markdown(results)
    shown = "This run shows that the pipeline works, and how fast: "
    assert results.said.startswith(shown)
    assert f", {results.tables[0].title} {shown}" in page
    assert not re.search("[Tt]he paper('s direction| reports| used)", results.said)


def test_a_terminal_shows_everything_within_its_width(made: JsonArtifact[Any]) -> None:
    table = made.load()
    for width in (60, 80, 100, 140):
        lines = printed(width, render_terminal(table, width, verbose=True))
        text = "\n".join(lines)
        assert max(map(len, lines)) <= width
        for shown in table.tables:
            assert shown.title in lines
            for row in shown.rows:
                for column in shown.columns:
                    assert column.on_terminal is False or not column.is_number or column.text(row).strip() in text
        unmarked = packed(text.replace("\n· ", "\n").replace("\n* ", "\n"))
        for note in table.notes:
            assert packed(note) in unmarked
        differences = [f"{entry.what} {entry.paper} {entry.here}" for entry in table.differences]
        assert all(word in text for difference in differences for word in difference.split())


def test_markdown_has_a_line_for_each_line(made: JsonArtifact[Any]) -> None:
    table = made.load()
    markdown = render_markdown(table)
    shown = table.tables
    titles = [line.lstrip("# ") for line in markdown.split("\n") if line.startswith("#")]
    assert titles == [*(text.title for text in shown), "Differences from the paper", "How to read the table"]
    for text in shown:
        lines = [line for line in markdown_table(text) if line.startswith("|")]
        assert "\n".join(lines) in markdown
        assert len(lines) == 2 + len(text.rows)
        assert {line.count(" | ") for line in lines if "---" not in line} == {len(text.columns) - 1}
    for mark, note in table.marked_notes:
        assert f"- {mark and 'BACK* '}{note}".replace("BACK", "\\") in markdown


def test_blocks_stand_beneath_each_other_where_they_do_not() -> None:
    assert printed(50, *terminal_table(SCORES, 50))[1:] == [
        "                    perplexity",
        "row   change             paper       here",
        "─────────────────────────────────────────",
        "base                      4.92  7.20±0.28",
        "─────────────────────────────────────────",
        "A1    h 1, d_k 512        5.29",
        "",
        "                     BLEU         training",
        "row   change        paper   here      FLOP",
        "──────────────────────────────────────────",
        "base                 25.8  24.10    3.1e12",
        "──────────────────────────────────────────",
        "A1    h 1, d_k 512  24.96          not run",
        "",
        "Time is not shown.",
        "",
        "",
    ]


@pytest.mark.parametrize("width", [38, 24])
def test_words_too_long_for_their_column_are_folded(width: int) -> None:
    shown = [Column(NAME, "name"), *columns("why")]
    table = Table("Names", shown, [in_order(shown, "restricted self-attention", "x" * 20)])
    lines = printed(width, *terminal_table(table, width))
    assert max(map(len, lines)) <= width
    assert "".join(lines).count("x") == 20


def test_markdown_escapes_what_it_would_interpret() -> None:
    shown = [Column(NAME, "model"), *columns("BLEU", block="EN-DE", spec="d")]
    rows = [in_order(shown, "a|b\\| *", 1, origin="paper"), in_order(shown, "c\nd", 2, origin="measured")]
    assert markdown_table(Table("", shown, rows)) == [
        "",
        "| model | EN-DE, BLEU |",
        "|---|---:|",
        "| a\\|b\\\\\\| \\* | 1 |",
        "| c; d, measured here | 2 |",
    ]
