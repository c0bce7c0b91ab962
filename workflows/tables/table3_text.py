"""Table 3 as text: for a terminal, and as a Markdown document.

    console.print(render_terminal(table, console.width))

A row without figures says why in their place: not run, failed or stopped.
"""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from workflows.console.quantities import duration
from workflows.paper import group
from workflows.tables import notes
from workflows.tables.table3 import KINDS, Correlation, Figure, Kind, OrderingOutcome, Table3, Table3Row

Block = Literal["perplexity", "bleu", "parameters", "time"]
"""Columns that stay together."""
LAYOUTS: tuple[tuple[tuple[Block, ...], ...], ...] = (
    (("perplexity", "bleu", "parameters", "time"),),
    (("perplexity", "parameters"), ("bleu", "time")),
)
"""Blocks side by side, and tables beneath each other, widest first."""
LEAST_CHANGE = len("d_model 1024,")
"""Width of the changes, for which there must be room beside the figures."""
KIND_NAMES: dict[Kind, str] = {"perplexity": "perplexity", "bleu": "BLEU"}
SYMBOLS: dict[Kind, str] = {"perplexity": "PPL", "bleu": "BLEU"}
"""As Table 3 heads them."""
ORDER = "worse → better"
ANSWERS = {True: "yes", False: "no", None: "unknown"}


@dataclass(frozen=True)
class Column:
    """A column of figures, here and in the report."""

    short: str
    """Its heading on a terminal, in two lines."""
    heading: str
    text: Callable[[Table3Row], str]
    """Of a row's cell; empty where there is no figure to be had."""
    is_measured: bool = False


def _of_kind(kind: Kind, printed_digits: int) -> list[Column]:
    """Figure as printed and as measured, each with its difference from base."""

    def printed(row: Table3Row) -> str:
        return str(getattr(row.printed, kind)) if row.printed else ""

    def printed_from_base(row: Table3Row) -> str:
        return f"{row.printed.from_base[kind]:+z.{printed_digits}f}" if row.printed and row.name != "base" else ""

    def measured(row: Table3Row) -> str:
        return _figure(getattr(row.trained, kind)) if row.trained else row.state

    def measured_from_base(row: Table3Row) -> str:
        from_base = row.trained.from_base if row.trained and row.name != "base" else None
        return f"{from_base[kind]:+z.2f}" if from_base else ""

    return [
        Column(f"{SYMBOLS[kind]}\npaper", f"{KIND_NAMES[kind]}, paper", printed),
        Column("\nΔ", "Δ", printed_from_base),
        Column(f"{SYMBOLS[kind]}\nhere", f"{KIND_NAMES[kind]}, here", measured, is_measured=True),
        Column("\nΔ", "Δ", measured_from_base, is_measured=True),
    ]


def _sacrebleu(row: Table3Row) -> str:
    return _figure(row.trained.sacrebleu) if row.trained else row.state


def _printed_parameters(row: Table3Row) -> str:
    return str(row.printed.parameters_millions or "") if row.printed else ""


def _parameters(row: Table3Row) -> str:
    return f"{row.trained.parameters / 1e6:.1f}" if row.trained else row.state


def _time(row: Table3Row) -> str:
    return duration(row.trained.train_s) if row.trained else row.state


def _figure(figure: Figure) -> str:
    return f"{figure.mean:.2f}" + ("" if figure.deviation is None else f"±{figure.deviation:.2f}")


COLUMNS: dict[Block, list[Column]] = {
    "perplexity": _of_kind("perplexity", 2),
    "bleu": [*_of_kind("bleu", 1), Column("sacre-\nBLEU", "sacreBLEU", _sacrebleu, is_measured=True)],
    "parameters": [
        Column("10⁶\npaper", "parameters, paper", _printed_parameters),
        Column("params\nhere", "parameters, here", _parameters, is_measured=True),
    ],
    "time": [Column("training\ntime", "training time", _time, is_measured=True)],
}


def render_terminal(table: Table3, width: int) -> RenderableType:
    """For a terminal of `width` columns: all figures side by side where there is room, else BLEU beneath perplexity."""
    least = max([LEAST_CHANGE, *(len(word) for row in table.rows for word in row.change.split())])
    names = _widest(["row", *(row.name for row in table.rows)])
    for layout in LAYOUTS:
        taken = max(names + sum(1 + figures for figures in _widths(table.rows, blocks)) for blocks in layout)
        change_width = width - taken - 1
        if change_width >= least:
            break
    shown: list[RenderableType] = [Text("Table 3", style="bold")]
    for blocks in layout:
        shown += [_grid(table.rows, blocks, max(change_width, least)), ""]
    if table.correlations:
        shown += [Text(correlation_text(table.correlations)), ""]
    if table.orderings:
        symbols = [text for kind in KINDS for text in (f"{SYMBOLS[kind]}\npaper", "\nhere")]
        orderings = notes.columns("said in §6.2", ORDER, *symbols)
        for ordering in table.orderings:
            orderings.add_row(*map(Text, _ordering_texts(ordering)))
        shown += [orderings, ""]
    return Group(*shown, notes.render_terminal(table.differences, table.notes))


def _widest(texts: Iterable[str]) -> int:
    return max(map(len, texts))


def _widths(rows: Sequence[Table3Row], blocks: Sequence[Block]) -> list[int]:
    """Of the columns of figures; with a space more before each block but the first."""
    return [
        _widest([*column.short.split("\n"), *map(column.text, rows)])
        + (column is COLUMNS[block][0] and block != blocks[0])
        for block in blocks
        for column in COLUMNS[block]
    ]


def _grid(rows: Sequence[Table3Row], blocks: Sequence[Block], change_width: int) -> Table:
    """The rows with some of the columns, a line between groups of rows."""
    grid = Table(box=box.HORIZONTALS, border_style="dim", show_edge=False, pad_edge=False, padding=0)
    grid.add_column("row")
    grid.add_column("change")
    columns = [column for block in blocks for column in COLUMNS[block]]
    for column, width in zip(columns, _widths(rows, blocks), strict=True):
        grid.add_column(column.short, justify="right", overflow="fold", width=width)
    for before, row in zip([None, *rows], rows, strict=False):
        if before and group(before.name) != group(row.name):
            grid.add_section()
        styles = ["" if not column.is_measured else "bold" if row.trained else "dim" for column in columns]
        figures = [Text(column.text(row), style=style) for column, style in zip(columns, styles, strict=True)]
        grid.add_row(Text(row.name), Text(_folded(row.change, change_width)), *figures)
    return grid


def _folded(change: str, width: int) -> str:
    """Broken into lines behind commas; elsewhere only what is too long for a line."""
    parts = (part.replace(" ", "\u00a0") if len(part) < width else part for part in change.split(", "))
    return textwrap.fill(", ".join(parts), width).replace("\u00a0", " ")


def correlation_text(correlations: Sequence[Correlation]) -> str:
    """How like the paper's order of the rows the measured one is, in a sentence."""
    told = ", ".join(f"{found.spearman:.2f} for {KIND_NAMES[found.kind]} ({found.rows} rows)" for found in correlations)
    return f"Spearman's rank correlation of the figures here with the paper's: {told}."


def _ordering_texts(ordering: OrderingOutcome) -> list[str]:
    holds = [origin[kind] for kind in KINDS for origin in (ordering.printed, ordering.measured)]
    return [ordering.said, " → ".join(ordering.rows), *(ANSWERS[answer] for answer in holds)]


def render_markdown(table: Table3) -> str:
    """The table and what stands beneath it, as a Markdown document."""
    columns = [column for block in COLUMNS.values() for column in block]
    headings = ["row", "change here", "change in the paper", *(column.heading for column in columns)]
    lines = ["# Table 3", "", notes.markdown_row(headings), "|---|---|---|" + "---:|" * len(columns)]
    for row in table.rows:
        printed = row.printed.change if row.printed else ""
        lines.append(notes.markdown_row([row.name, row.change, printed, *(column.text(row) for column in columns)]))
    lines += ["", "Parameters in millions."]
    if table.correlations:
        lines += ["", correlation_text(table.correlations)]
    if table.orderings:
        holds = [f"holds for {KIND_NAMES[kind]}, {origin}" for kind in KINDS for origin in ("paper", "here")]
        lines += ["", "## What the paper reads from it", ""]
        lines += [notes.markdown_row(["said in §6.2", ORDER, *holds]), "|---|---|" + "---|" * len(holds)]
        lines += [notes.markdown_row(_ordering_texts(ordering)) for ordering in table.orderings]
    return "\n".join([*lines, *notes.render_markdown(table.differences, table.notes)]) + "\n"
