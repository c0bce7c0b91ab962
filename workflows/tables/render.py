"""Renders any of the tables as text: for a terminal, and as a Markdown document.

    console.print(render_terminal(table, console.width))

Beneath what a table shows stand the differences from the paper, and the notes. On a terminal too narrow for a table its
blocks stand beneath each other, each with the columns that lead, and words too long for their column are folded.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol

from rich.box import HORIZONTALS
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from workflows import paper
from workflows.tables.differences import Difference
from workflows.tables.text_table import ABSENT, Line, TextTable, words

FOOTNOTES = frozenset(row.footnote for row in paper.TABLE_2 if row.footnote)
"""The notes that an asterisk in a table refers to."""

MIN_NAME = 24
"""The width to which names beside figures may be folded."""
GAP = 2
"""Between columns."""


class Shown(Protocol):
    """A table of the paper."""

    @property
    def differences(self) -> list[Difference]:
        """What differs from the paper."""

    @property
    def notes(self) -> list[str]:
        """How to read it."""

    def figures(self) -> dict[str, float]:
        """Returns the main figures, by their names in MLflow."""

    def shown(self) -> list[TextTable]:
        """Returns the table itself, then what else stands beneath it."""


def differences_table(differences: Sequence[Difference]) -> TextTable:
    """Returns the differences from the paper as a table."""
    lines = [Line([entry.what, entry.paper, entry.here, ", ".join(entry.cells)]) for entry in differences]
    nothing = "" if lines else "Nothing that was run differs."
    return TextTable("What differs from the paper", words("what", "paper", "here", "applies to"), lines, nothing)


def render_terminal(table: Shown, width: int) -> RenderableType:
    """Renders the table for a terminal of `width` columns."""
    shown = [*table.shown(), differences_table(table.differences)]
    notes = Table.grid(padding=(0, 1, 0, 0))
    for note in table.notes:
        notes.add_row("*" if note in FOOTNOTES else "·", Text(note), style="dim")
    return Group(*(part for text in shown if text.on_terminal for part in terminal_table(text, width)), notes)


def terminal_table(table: TextTable, width: int) -> Iterator[RenderableType]:
    """Yields a table's title, its parts for a terminal of `width` columns, and what explains it."""
    yield Text(table.title, style="bold")
    if table.lines:
        for columns in _parts(table, width):
            yield _grid(table, columns)
            yield ""
    if table.explanation:
        yield Text(f"{table.explanation}\n")


def _parts(table: TextTable, width: int) -> list[list[int]]:
    """Returns the columns of each part: those that lead, and as many blocks as there is room for."""
    shown = [i for i, column in enumerate(table.columns) if column.on_terminal]
    leading = [i for i in shown if not table.columns[i].block]
    parts = [leading]
    for block, places in table.blocks:
        if block:
            wider = [*parts[-1], *places]
            if parts[-1] == leading or sum(_least(table, i) + GAP for i in wider) - GAP <= width:
                parts[-1] = wider
            else:
                parts.append([*leading, *places])
    return parts


def _least(table: TextTable, i: int) -> int:
    """Returns the width below which a column is made no narrower: figures are not folded, nor are words broken."""
    column = table.columns[i]
    texts = [line.texts[i] for line in table.lines if line.kind != "heading"]
    if not (column.is_number or column.block):
        has_figures_beside = any(other.block for other in table.columns)
        texts = [text[:MIN_NAME] for line in texts for text in ([line] if has_figures_beside else line.split())]
    return max(map(len, [*texts, *_heading(table, i).split()]), default=0)


def _heading(table: TextTable, i: int) -> str:
    """Returns a column's heading, below that of its block where the block begins."""
    column = table.columns[i]
    begins = column.block and (i == 0 or table.columns[i - 1].block != column.block)
    return f"{column.block}\n{column.heading}" if begins else column.heading


def _grid(table: TextTable, columns: Sequence[int]) -> Table:
    """Draws columns side by side; of figures, none is folded."""
    grid = Table(box=HORIZONTALS, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0), border_style="dim")
    for i in columns:
        justify: Literal["right", "left"] = "right" if table.columns[i].is_number else "left"
        grid.add_column(
            Text(_heading(table, i), style="bold"), justify=justify, overflow="fold", no_wrap=table.columns[i].is_number
        )
    for line in table.lines:
        if line.begins:
            grid.add_section()
        if line.kind == "heading":
            grid.add_row(Text(line.texts[0], style="dim italic"))
        else:
            grid.add_row(*(Text(line.texts[i], style=_style(table, line, i)) for i in columns))
    return grid


def _style(table: TextTable, line: Line, i: int) -> str:
    if line.texts[i] in ABSENT:
        return "dim"
    return "bold" if table.is_measured(line, i) else ""


def render_markdown(table: Shown) -> str:
    """Renders the table, and everything beneath it, as a Markdown document."""
    main, *others = table.shown()
    lines = [f"# {main.title}", *markdown_table(main)]
    for other in (*others, differences_table(table.differences)):
        lines += ["", f"## {other.title}", *markdown_table(other)]
    notes = [("\\* " if note in FOOTNOTES else "") + note for note in table.notes]
    return "\n".join([*lines, "", "## How to read the table", "", *(f"- {note}" for note in notes)]) + "\n"


def markdown_table(table: TextTable) -> list[str]:
    """Returns one table, and what explains it, as lines of a Markdown document."""
    lines = []
    if table.lines:
        rule = "|".join("---:" if column.is_number else "---" for column in table.columns)
        lines += ["", _markdown_row(column.label for column in table.columns), f"|{rule}|"]
        for line in (line for line in table.lines if line.kind != "heading"):
            name, *others = line.texts
            lines.append(_markdown_row([name + ", measured" * (line.kind == "measured"), *others]))
    return [*lines, *(["", table.explanation] if table.explanation else [])]


def _markdown_row(texts: Iterable[str]) -> str:
    escaped = (
        text.replace("\n", "; ").replace("\\", "\\\\").replace("|", "\\|").replace(" *", " \\*") for text in texts
    )
    return f"| {' | '.join(escaped)} |"
