"""Renders tables as text, for a terminal and as a Markdown document.

    console.print(render_terminal(table, console.width, verbose=False))

On a narrow terminal, a table's blocks are stacked, each with the leading columns, and words too long for their column
are folded.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from rich.box import HORIZONTALS
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from workflows.tables.table import NAME, Column, Difference, Results, Table, columns, in_order

MIN_NAME = 24
"""The width to which row names may be folded."""
GAP = 2
"""Between columns."""
UNSEEN = "The report has the differences from the paper and the notes; -v prints them, too."


def template(package: str, name: str) -> Any:
    """Returns a template of a package; what is written into HTML is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # every command imports this module

    blocks: Any = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    is_html, loader = ".html" in name, PackageLoader(package)
    return Environment(loader=loader, autoescape=is_html, undefined=StrictUndefined, **blocks).get_template(name)


def differences_table(differences: Sequence[Difference]) -> Table:
    """Returns the differences from the paper as a table."""
    shown = [Column(NAME, "what"), *columns("paper", "here", "applies to")]
    rows = [in_order(shown, entry.what, entry.paper, entry.here, ", ".join(entry.cells)) for entry in differences]
    return Table("Differences from the paper", shown, rows, "" if rows else "No differences in what was run.")


def render_terminal(results: Results, width: int, *, verbose: bool) -> RenderableType:
    """Renders the tables for a terminal of `width` columns; if `verbose`, the differences and notes below them."""
    notes = Grid.grid(padding=(0, 1, 0, 0))
    for mark, note in results.marked_notes if verbose else [("·", UNSEEN)]:
        notes.add_row(mark or "·", Text(note), style="dim")
    shown = [*results.tables, *[differences_table(results.differences)] * verbose]
    return Group(*(part for table in shown for part in terminal_table(table, width)), notes)


def terminal_table(table: Table, width: int) -> Iterator[RenderableType]:
    """Yields a table's title, its parts for a terminal of `width` columns, and its explanation."""
    yield Text(table.title, style="bold")
    if table.rows:
        for part in _parts(table, width):
            yield _grid(table, part)
            yield ""
    if table.explanation:
        yield Text(f"{table.explanation}\n")


def _parts(table: Table, width: int) -> list[list[Column]]:
    """Returns the columns of each part: the leading columns, and as many blocks as fit."""
    leading = [column for column in table.columns if column.on_terminal and not column.block]
    parts = [leading]
    for block, of_block in table.blocks:
        if block:
            wider = [*parts[-1], *of_block]
            if parts[-1] == leading or sum(_least(table, column) + GAP for column in wider) - GAP <= width:
                parts[-1] = wider
            else:
                parts.append([*leading, *of_block])
    return parts


def _least(table: Table, column: Column) -> int:
    """Returns a column's least width: numbers are not folded, nor words broken."""
    texts = [column.text(row) for row in table.rows]
    if not (column.is_number or column.block):
        has_numbers_beside = any(other.block for other in table.columns)
        texts = [text[:MIN_NAME] for line in texts for text in ([line] if has_numbers_beside else line.split())]
    return max(map(len, [*texts, *_heading(table, column).split()]), default=0)


def _heading(table: Table, column: Column) -> str:
    """Returns a column's heading, below the block's heading if the block begins here."""
    begins = any(block and of_block[0] == column for block, of_block in table.blocks)
    return f"{column.block}\n{column.heading}" if begins else column.heading


def _grid(table: Table, columns: Sequence[Column]) -> Grid:
    """Draws columns side by side; numbers are not folded."""
    grid = Grid(box=HORIZONTALS, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0), border_style="dim")
    for column in columns:
        justify: Literal["right", "left"] = "right" if column.is_number else "left"
        heading = Text(_heading(table, column), style="bold")
        grid.add_column(heading, justify=justify, overflow="fold", no_wrap=column.is_number)
    for row, heading_above, begins in table.lines():
        if begins:
            grid.add_section()
        if heading_above:
            grid.add_row(Text(heading_above, style="dim italic"))
        styles = ("dim" if column.is_missing(row) else "bold" * column.measured(row) for column in columns)
        grid.add_row(*map(Text, [column.text(row) for column in columns], styles))
    return grid


def render_markdown(results: Results) -> str:
    """Renders the tables, differences and notes as a Markdown document."""
    main, *others = results.tables
    lines = [f"# {main.title}", *markdown_table(main)]
    for other in (*others, differences_table(results.differences)):
        lines += ["", f"## {other.title}", *markdown_table(other)]
    notes = ["- " + f"\\{mark} " * bool(mark) + note for mark, note in results.marked_notes]
    return "\n".join([*lines, "", "## How to read the table", "", *notes]) + "\n"


def markdown_table(table: Table) -> list[str]:
    """Returns one table and its explanation as lines of Markdown."""
    lines = []
    if table.rows:
        rule = "|".join("---:" if column.is_number else "---" for column in table.columns)
        lines += ["", markdown_row(column.label.replace("\n", " ") for column in table.columns), f"|{rule}|"]
        for row in table.rows:
            name, *others = (column.text(row) for column in table.columns)
            lines.append(markdown_row([f"{name}, {table.measured}" if row.origin == "measured" else name, *others]))
    return [*lines, *(["", table.explanation] if table.explanation else [])]


def markdown_row(texts: Iterable[str]) -> str:
    """Returns texts as a row of a Markdown table."""
    escaped = (one.replace("\n", "; ").replace("\\", "\\\\").replace("|", "\\|").replace(" *", " \\*") for one in texts)
    return f"| {' | '.join(escaped)} |"
