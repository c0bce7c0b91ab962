"""Tables as text: all that a table shows is there, whatever the width of the terminal, and in Markdown."""

from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from pipeline.store.artifact import JsonArtifact
from workflows.tables.render import (
    FOOTNOTES,
    differences_table,
    markdown_table,
    render_markdown,
    render_terminal,
    terminal_table,
)
from workflows.tables.table1 import Table1Artifact
from workflows.tables.table2 import Table2Artifact
from workflows.tables.table3 import Table3Artifact
from workflows.tables.table4 import Table4Artifact
from workflows.tables.text_table import Column, Line, TextTable, by_origin, numbers, unbroken, words

ARTIFACTS = {one.figures_file: one for one in (Table1Artifact, Table2Artifact, Table3Artifact, Table4Artifact)}
EXPECTED = Path(__file__).parent / "expected"
SCORES = TextTable(
    "Scores",
    [
        *words("row", "change"),
        *numbers("paper", "here", block="perplexity"),
        *numbers("paper", "here", block="BLEU"),
        *numbers("FLOP", block="training", is_measured=True),
    ],
    [
        Line(["base", "", "4.92", "7.20±0.28", "25.8", "24.10", "3.1e12"]),
        Line(["A1", unbroken("h 1, d_k 512"), "5.29", "", "24.9", "", "not run"], begins=True),
    ],
    "Time is not shown.",
)


def packed(text: str) -> str:
    """Returns a text with single spaces between words."""
    return " ".join(text.split())


def stored(name: str) -> JsonArtifact[Any]:
    """Returns the artifact of a stored table."""
    return ARTIFACTS[name](EXPECTED)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("name", ARTIFACTS)
def test_a_terminal_shows_everything_within_its_width(name: str, width: int) -> None:
    """Every table has its title; every figure is in it, and every note and difference beneath."""
    table = stored(name).load()
    text = render_terminal(table, width).plain
    assert max(map(len, text.split("\n"))) <= width
    for shown in table.shown():
        assert (f"{shown.title}\n" in text) is shown.on_terminal
        for line in shown.lines if shown.on_terminal else ():
            for cell, column in zip(line.texts, shown.columns, strict=False):
                assert column.on_terminal is False or not column.is_number or cell.strip() in text
    for note in table.notes:
        assert packed(note) in packed(text)
    assert all(word in text for one in table.differences for word in f"{one.what} {one.paper} {one.here}".split())


@pytest.mark.parametrize("name", ARTIFACTS)
def test_markdown_has_a_line_for_each_line(name: str) -> None:
    """Each with all columns, whether they fit a terminal or not, and a list of the notes."""
    table = stored(name).load()
    markdown = render_markdown(table)
    shown = table.shown()
    titles = [line.lstrip("# ") for line in markdown.split("\n") if line.startswith("#")]
    assert titles == [*(one.title for one in shown), "What differs from the paper", "How to read the table"]
    for one in shown:
        lines = [line for line in markdown_table(one) if line.startswith("|")]
        assert "\n".join(lines) in markdown
        assert len(lines) == 2 + sum(line.kind != "heading" for line in one.lines)
        assert {line.count(" | ") for line in lines if "---" not in line} == {len(one.columns) - 1}
    for note in table.notes:
        assert f"- {'* ' if note in FOOTNOTES else ''}{note}".replace("- *", "- \\*") in markdown


def test_blocks_stand_side_by_side_where_they_fit() -> None:
    """Each under its heading, and changes are folded, behind a comma, before blocks are parted."""
    assert terminal_table(SCORES, 56).plain == (
        "Scores\n"
        "                     perplexity        BLEU     training\n"
        "row   change      paper      here  paper  here      FLOP\n"
        "────────────────────────────────────────────────────────\n"
        "base               4.92 7.20±0.28   25.8 24.10    3.1e12\n"
        "────────────────────────────────────────────────────────\n"
        "A1    h 1,         5.29             24.9         not run\n"
        "      d_k 512\n"
        "\n"
        "Time is not shown.\n\n"
    )


def test_blocks_stand_beneath_each_other_where_they_do_not() -> None:
    """In as few parts as will do, each with the columns that lead."""
    assert terminal_table(SCORES, 50).plain == (
        "Scores\n"
        "                       perplexity\n"
        "row   change        paper      here\n"
        "───────────────────────────────────\n"
        "base                 4.92 7.20±0.28\n"
        "───────────────────────────────────\n"
        "A1    h 1, d_k 512   5.29\n"
        "\n"
        "                        BLEU     training\n"
        "row   change        paper  here      FLOP\n"
        "─────────────────────────────────────────\n"
        "base                 25.8 24.10    3.1e12\n"
        "─────────────────────────────────────────\n"
        "A1    h 1, d_k 512   24.9         not run\n"
        "\n"
        "Time is not shown.\n\n"
    )


def test_words_are_broken_only_where_nothing_else_fits() -> None:
    """A name is folded between its words first; a word as long as the terminal is cut, and nothing is lost."""
    table = TextTable("Names", words("name", "why"), [Line(["restricted self-attention", "x" * 30])])
    lines = terminal_table(table, 48).plain.split("\n")
    assert [line.split() for line in lines[3:5]] == [["restricted", "x" * 30], ["self-attention"]]
    narrow = terminal_table(table, 30).plain
    assert max(map(len, narrow.split("\n"))) <= 30
    assert narrow.count("x") == 30


def styles_of(text: Text, shown: str) -> set[str]:
    """Returns the styles of what is `shown` in a text."""
    at = text.plain.index(shown)
    return {str(span.style) for span in text.spans if span.start <= at < span.end}


def test_measured_figures_are_bold_and_missing_ones_pale() -> None:
    """Lines of what was measured, or columns of it; text that looks like markup is shown as it is."""
    text = terminal_table(SCORES, 80)
    assert styles_of(text, "3.1e12") == {"bold"}
    assert styles_of(text, "not run") == {"dim"}
    assert styles_of(text, "25.8") == set()
    lines = by_origin([["[red]ByteNet", "23.75"]], [["Transformer", "27.30"]])
    text = terminal_table(TextTable("BLEU", [Column("model"), *numbers("BLEU")], lines), 80)
    assert text.plain.split("\n")[3:8] == [
        "as printed in the paper",
        "[red]ByteNet  23.75",
        "─" * 19,
        "measured here",
        "Transformer   27.30",
    ]
    assert styles_of(text, "27.30") == styles_of(text, "Transformer") == {"bold"}
    assert styles_of(text, "measured here") == {"dim italic"}


def test_markdown_escapes_what_it_would_interpret() -> None:
    """Measured lines say so; lines of a text stand behind each other."""
    lines = by_origin([["a|b *", "1"]], [["c\nd", "2"]])
    assert markdown_table(TextTable("", [Column("model"), *numbers("BLEU", block="EN-DE")], lines)) == [
        "",
        "| model | EN-DE, BLEU |",
        "|---|---:|",
        "| a\\|b \\* | 1 |",
        "| c; d, measured | 2 |",
    ]


def test_nothing_differs() -> None:
    """Which is said, rather than shown as an empty table."""
    assert "Nothing that was run differs." in terminal_table(differences_table([]), 80).plain
