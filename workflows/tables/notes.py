"""What stands beneath every measured table as text: what differs from the paper, and how the figures are to be read."""

from collections.abc import Collection, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from workflows.tables.differences import Difference


def render_terminal(
    differences: Sequence[Difference], notes: Sequence[str], footnotes: Collection[str] = ()
) -> RenderableType:
    """Both for a terminal; those of the notes that an asterisk in the table refers to are `footnotes`."""
    unlike = columns("what differs", "paper", "here", "in")
    said = ""
    for difference in differences:
        what, said = "" if difference.what == said else difference.what, difference.what
        unlike.add_row(*map(Text, (what, *_texts(difference)[1:])))
    told = Table.grid(padding=(0, 1))
    for note in notes:
        told.add_row(*(Text(text, style="dim") for text in ("*" if note in footnotes else "·", note)))
    return Group(unlike if differences else Text("Nothing differs from the paper."), "", told)


def columns(*headings: str) -> Table:
    """An empty table for a terminal, of text under bold headings without lines."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, header_style="bold")
    return table


def render_markdown(
    differences: Sequence[Difference], notes: Sequence[str], footnotes: Collection[str] = ()
) -> list[str]:
    """The same as sections of a Markdown document, line by line."""
    lines = ["", "## What differs from the paper", ""]
    if differences:
        lines += [markdown_row(["what", "paper", "here", "in"]), "|---|---|---|---|"]
        lines += [markdown_row(_texts(difference)) for difference in differences]
    else:
        lines.append("Nothing.")
    marked = [("\\* " if note in footnotes else "") + note for note in notes]
    return [*lines, "", "## How to read it", "", *(f"- {note}" for note in marked)]


def markdown_row(texts: Sequence[str]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(text.replace("|", "\\|").replace(" *", " \\*") for text in texts) + " |"


def _texts(difference: Difference) -> list[str]:
    return [difference.what, difference.paper, difference.here, ", ".join(difference.cells)]
