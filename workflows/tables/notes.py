"""Renders as text what stands beneath every measured table: the differences from the paper, and the notes."""

from collections.abc import Collection, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from workflows.tables.differences import Difference

HEADINGS = ("what differs", "paper", "here", "applies to")


def render_terminal(
    differences: Sequence[Difference], notes: Sequence[str], footnotes: Collection[str] = ()
) -> RenderableType:
    """Renders both for a terminal; `footnotes` are those of the notes that an asterisk in the table refers to."""
    grid = columns(*HEADINGS)
    previous = ""
    for difference in differences:
        what, previous = "" if difference.what == previous else difference.what, difference.what
        grid.add_row(*map(Text, (what, *_texts(difference)[1:])))
    listed = Table.grid(padding=(0, 1))
    for note in notes:
        listed.add_row(*(Text(text, style="dim") for text in ("*" if note in footnotes else "·", note)))
    return Group(grid if differences else Text("Nothing differs from the paper."), "", listed)


def columns(*headings: str) -> Table:
    """Returns an empty table for a terminal, with bold headings and no lines."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, header_style="bold")
    return table


def render_markdown(
    differences: Sequence[Difference], notes: Sequence[str], footnotes: Collection[str] = ()
) -> list[str]:
    """Renders both as sections of a Markdown document, and returns its lines."""
    lines = ["", "## What differs from the paper", ""]
    if differences:
        lines += [markdown_row(HEADINGS), "|---|---|---|---|"]
        lines += [markdown_row(_texts(difference)) for difference in differences]
    else:
        lines.append("Nothing.")
    marked = [("\\* " if note in footnotes else "") + note for note in notes]
    return [*lines, "", "## How to read the table", "", *(f"- {note}" for note in marked)]


def markdown_row(texts: Sequence[str]) -> str:
    """Returns a line of a Markdown table."""
    return "| " + " | ".join(text.replace("|", "\\|").replace(" *", " \\*") for text in texts) + " |"


def _texts(difference: Difference) -> list[str]:
    return [difference.what, difference.paper, difference.here, ", ".join(difference.cells)]
