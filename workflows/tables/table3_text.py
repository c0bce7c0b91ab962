"""Renders Table 3 as text: for a terminal, and as a Markdown document.

    console.print(render_terminal(table, console.width))

A row without figures says in their place why it has none: not run, failed or stopped.
"""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from workflows.paper import KINDS, VARIATIONS, Kind, group
from workflows.quantities import duration, flop_text
from workflows.tables import notes
from workflows.tables.orderings import OrderingOutcome
from workflows.tables.table3 import Correlation, Figure, Table3, Table3Row

Block = Literal["perplexity", "bleu", "parameters", "time"]
"""A group of columns that stay together."""
LAYOUTS: tuple[tuple[tuple[Block, ...], ...], ...] = (
    (("perplexity", "bleu", "parameters", "time"),),
    (("perplexity", "parameters"), ("bleu", "time")),
)
"""Each layout is a list of tables beneath each other, and each table a list of blocks side by side; widest first."""
LEAST_CHANGE = len("d_model 1024,")
"""The least width of the column of changes that a layout must leave beside the figures."""
KIND_NAMES: dict[Kind, str] = {"perplexity": "perplexity", "bleu": "BLEU"}
SYMBOLS: dict[Kind, str] = {"perplexity": "PPL", "bleu": "BLEU"}
"""The headings of Table 3 in the paper."""
CLAIMS_HEADING = "What the paper concludes from it"
CLAIM = "claim in §6.2, §5.4"
ORDER = "worse → better"
ANSWERS = {True: "yes", False: "no", None: "unknown"}
Origin = Literal["paper", "here"]
ORIGINS: tuple[Origin, ...] = ("paper", "here")
NOT_CONVERGED = "not converged"


@dataclass(frozen=True)
class Column:
    """A column of figures, here and in the report."""

    short: str
    """Its heading on a terminal, on two lines."""
    heading: str
    text: Callable[[Table3Row], str]
    """Returns the text of a row's cell, empty where there is no figure."""
    is_measured: bool = False


def _of_kind(kind: Kind, printed_digits: int) -> list[Column]:
    """Returns the columns of a figure as printed and as measured, each with its difference from base."""

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
    return f"{row.trained.sacrebleu.mean:.2f}" if row.trained else row.state


def _printed_parameters(row: Table3Row) -> str:
    return str(row.printed.parameters_millions or "") if row.printed else ""


def _parameters(row: Table3Row) -> str:
    return f"{row.trained.parameters / 1e6:.1f}" if row.trained else row.state


def _time(row: Table3Row) -> str:
    return duration(row.trained.train_s / len(row.trained.seeds)) if row.trained else row.state


def _flop(row: Table3Row) -> str:
    return flop_text(row.trained.counted_flop / len(row.trained.seeds)) if row.trained else row.state


def _figure(figure: Figure) -> str:
    """Formats a mean and its deviation, which few seeds give to no more than two digits."""
    if figure.deviation is None:
        return f"{figure.mean:.2f}"
    decimals = 2 if figure.deviation < 1 else 1 if figure.deviation < 10 else 0
    return f"{figure.mean:.2f}±{figure.deviation:.{decimals}f}"


COLUMNS: dict[Block, list[Column]] = {
    "perplexity": _of_kind("perplexity", 2),
    "bleu": [*_of_kind("bleu", 1), Column("sacre-\nBLEU", "sacreBLEU", _sacrebleu, is_measured=True)],
    "parameters": [
        Column("10⁶\npaper", "parameters, paper", _printed_parameters),
        Column("params\nhere", "parameters, here", _parameters, is_measured=True),
    ],
    "time": [
        Column("training\ntime", "training time", _time, is_measured=True),
        Column("\nFLOP", "FLOP", _flop, is_measured=True),
    ],
}


def render_terminal(table: Table3, width: int) -> RenderableType:
    """Renders the table for a terminal of `width` columns, with BLEU beside perplexity if there is room, else below."""
    least = max([LEAST_CHANGE, *(len(word) for row in table.rows for word in row.change.split())])
    name_width = _widest(["row", *(row.name for row in table.rows)])
    for layout in LAYOUTS:
        used = max(name_width + sum(1 + figures for figures in _widths(table.rows, blocks)) for blocks in layout)
        change_width = width - used - 1
        if change_width >= least:
            break
    shown: list[RenderableType] = [Text("Table 3", style="bold")]
    for blocks in layout:
        shown += [_grid(table.rows, blocks, max(change_width, least)), ""]
    if table.correlations:
        shown += [Text(correlation_text(table.correlations)), ""]
    if table.orderings:
        symbols = [text for kind in KINDS for text in (f"{SYMBOLS[kind]}\npaper", "\nhere")]
        orderings = notes.columns(CLAIM, ORDER, *symbols)
        orderings.columns[1].no_wrap = True
        for said, order, *answers in map(_ordering_texts, table.orderings):
            orderings.add_row(*map(Text, (said, order.replace(", ", ",\n"), *answers)))
        shown += [orderings, ""]
    return Group(*shown, notes.render_terminal(table.differences, table.notes))


def _widest(texts: Iterable[str]) -> int:
    return max(map(len, texts))


def _widths(rows: Sequence[Table3Row], blocks: Sequence[Block]) -> list[int]:
    """Returns the widths of the columns of figures, with one more space before each block but the first."""
    return [
        _widest([*column.short.split("\n"), *map(column.text, rows)])
        + (column is COLUMNS[block][0] and block != blocks[0])
        for block in blocks
        for column in COLUMNS[block]
    ]


def _grid(rows: Sequence[Table3Row], blocks: Sequence[Block], change_width: int) -> Table:
    """Renders the rows with some of the columns, and a rule between groups of rows."""
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
        change = Text(_folded(row.change, change_width))
        if mark := convergence_mark(row):
            change.append("\n" * bool(row.change) + mark, style="italic dim")
        grid.add_row(Text(row.name), change, *figures)
    return grid


def convergence_mark(row: Table3Row) -> str:
    """Returns what is written beside a row whose training was still improving when it ended."""
    return NOT_CONVERGED if row.trained and row.trained.has_converged is False else ""


def _folded(change: str, width: int) -> str:
    """Breaks a change into lines after commas, and elsewhere only where it is too long for a line."""
    parts = (part.replace(" ", "\u00a0") if len(part) < width else part for part in change.split(", "))
    return textwrap.fill(", ".join(parts), width).replace("\u00a0", " ")


def correlation_text(correlations: Sequence[Correlation]) -> str:
    """Says in a sentence how closely the measured order of the rows follows the paper's."""
    listed = ", ".join(f"{one.spearman:.2f} for {KIND_NAMES[one.kind]} ({one.rows} rows)" for one in correlations)
    return f"Spearman's rank correlation between the figures here and the paper's: {listed}."


def order_text(ordering: OrderingOutcome) -> str:
    """Writes the order that a claim gives its rows, from the worse to the better."""
    if ordering.relation == "best":
        n_others = len(ordering.rows) - 1
        return f"{n_others} of {len(VARIATIONS) - 1} rows → {ordering.rows[-1]}"
    if ordering.relation == "equal":
        return " = ".join(ordering.rows)
    if ordering.reversed:
        directions = {kind: ordering.rows[::-1] if kind in ordering.reversed else ordering.rows for kind in KINDS}
        return ", ".join(f"{SYMBOLS[kind]} {' → '.join(rows)}" for kind, rows in directions.items())
    return " → ".join(ordering.rows)


def answer(ordering: OrderingOutcome, kind: Kind, origin: Origin) -> str:
    """Says whether a claim holds; with a question mark where the noise between seeds, which could tell, is unknown."""
    if origin == "paper":
        return ANSWERS[ordering.printed[kind]]
    verdict, measured = ordering.verdict.get(kind), ordering.measured[kind]
    return verdict or ANSWERS[measured] + ("" if measured is None else "?")


def _ordering_texts(ordering: OrderingOutcome) -> list[str]:
    answers = (answer(ordering, kind, origin) for kind in KINDS for origin in ORIGINS)
    return [ordering.said, order_text(ordering), *answers]


def render_markdown(table: Table3) -> str:
    """Renders the table, and everything beneath it, as a Markdown document."""
    columns = [column for block in COLUMNS.values() for column in block]
    headings = ["row", "change here", "change in the paper", *(column.heading for column in columns)]
    lines = ["# Table 3", "", notes.markdown_row(headings), "|---|---|---|" + "---:|" * len(columns)]
    for row in table.rows:
        printed = row.printed.change if row.printed else ""
        change = "; ".join(filter(None, (row.change, convergence_mark(row))))
        lines.append(notes.markdown_row([row.name, change, printed, *(column.text(row) for column in columns)]))
    lines += ["", "Parameters are in millions. Time and FLOP are those of one training."]
    if table.correlations:
        lines += ["", correlation_text(table.correlations)]
    if table.orderings:
        holds = [f"holds for {KIND_NAMES[kind]}, {origin}" for kind in KINDS for origin in ORIGINS]
        lines += ["", f"## {CLAIMS_HEADING}", ""]
        lines += [notes.markdown_row([CLAIM, ORDER, *holds]), "|---|---|" + "---|" * len(holds)]
        lines += [notes.markdown_row(_ordering_texts(ordering)) for ordering in table.orderings]
    return "\n".join([*lines, *notes.render_markdown(table.differences, table.notes)]) + "\n"
