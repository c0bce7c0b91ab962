"""Computes and renders Table 2 (§6.1): BLEU and training cost, the paper's printed rows above the measured ones.

    python -m workflows.reproduce_table2

A measured number comes from an artifact's file; a cell that was not run says so. The differences from the paper, and
notes on how to read the scores, always stand beneath the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from pipeline.store.artifact import JsonArtifact
from workflows import paper
from workflows.quantities import flop_text
from workflows.tables import notes
from workflows.tables.differences import Difference, differences, table2_notes
from workflows.tables.measurements import Measured

MEASURED_NAMES = {"base": "Transformer (base)", "big": "Transformer (big)"}
NOT_RUN = "not run"
WORD_BY_WORD = "word-by-word"
NAMES_WIDTH, COLUMN_WIDTH = max(len(row.name) for row in paper.TABLE_2) + 3, 7
"""Columns of the terminal for the names, with an asterisk, and for a figure."""
FOOTNOTES = frozenset(row.footnote for row in paper.TABLE_2 if row.footnote)
"""The notes that an asterisk beside a row's name refers to."""


@dataclass(frozen=True)
class Table2Cell:
    """One model on one language pair; a number is None where there is none."""

    paper_bleu: float | None = None
    sacrebleu: float | None = None
    paper_way_flop: float | None = None
    counted_flop: float | None = None
    not_run: bool = False
    printed_bleu: str = ""
    """Paper BLEU with the digits that the paper prints; empty in a measured row."""

    def texts(self) -> tuple[str, str, str, str]:
        """Returns the texts to show: paper BLEU, sacreBLEU, cost in the paper's way, counted cost."""
        if self.not_run:
            return (NOT_RUN,) * 4
        if self.printed_bleu:
            # A figure space where the paper prints one decimal keeps the points of the column aligned.
            bleu = self.printed_bleu + "\u2007" * (self.printed_bleu[-2] == ".")
            return bleu, "", "" if self.paper_way_flop is None else flop_text(self.paper_way_flop), ""
        bleu, sacre = ("" if score is None else f"{score:.2f}" for score in (self.paper_bleu, self.sacrebleu))
        cost, counted = ("" if flop is None else flop_text(flop) for flop in (self.paper_way_flop, self.counted_flop))
        return bleu, sacre, cost, counted


@dataclass(frozen=True)
class Table2Row:
    """A row of the table."""

    name: str
    origin: Literal["paper", "measured"]
    cells: dict[str, Table2Cell]
    """The cells by language pair, in the same order in every row."""

    def texts(self) -> list[str]:
        """Returns the texts to show in the order of `Table2.columns`."""
        texts = [cell.texts() for cell in self.cells.values()]
        return [text for four in texts for text in four[:2]] + [text for four in texts for text in four[2:]]


@dataclass(frozen=True)
class Table2:
    """The table with everything that stands beneath it."""

    rows: list[Table2Row]
    differences: list[Difference]
    notes: list[str]

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The language pair and kind of figure of each column: the scores of each pair, then the costs of each pair."""
        kinds = ("paper BLEU", "sacreBLEU"), ("cost, paper's way", "cost, counted")
        return [(pair.upper(), kind) for half in kinds for pair in self.rows[0].cells for kind in half]

    def figures(self) -> dict[str, float]:
        """Returns the paper BLEU of each measured cell, e.g. {"paper BLEU EN-DE base": 27.3, ...}."""
        names = {row: model for model, row in MEASURED_NAMES.items()}
        measured = [row for row in self.rows if row.origin == "measured"]
        return {
            f"paper BLEU {pair.upper()} {names.get(row.name, WORD_BY_WORD)}": cell.paper_bleu
            for row in sorted(measured, key=lambda row: row.name not in names)
            for pair, cell in row.cells.items()
            if cell.paper_bleu is not None
        }


class Table2Artifact(JsonArtifact[Table2]):
    """`table2.json`, `table2.md` and `report.html`."""

    figures_file = "table2.json"


def _printed(row: paper.PrintedRow, pairs: Sequence[str]) -> Table2Row:
    cells: dict[str, Table2Cell] = {}
    for pair in pairs:
        bleu = row.bleu.get(pair, "")
        cells[pair] = Table2Cell(
            float(bleu) if bleu else None, paper_way_flop=row.cost_flop.get(pair), printed_bleu=bleu
        )
    return Table2Row(row.name + (" *" if row.footnote else ""), "paper", cells)


def _measured(measured: Measured | None) -> Table2Cell:
    if measured is None:
        return Table2Cell(not_run=True)
    scores, cost = measured.main_scores, measured.cost
    return Table2Cell(scores.paper_bleu, scores.sacrebleu, cost.paper_way_flop, cost.counted_flop)


def _word_by_word(measured: Sequence[Measured], pairs: Sequence[str]) -> list[Table2Row]:
    cells = {
        cell.pair: Table2Cell(scores.paper_bleu, scores.sacrebleu)
        for cell in measured
        if cell.word_by_word and (scores := cell.word_by_word[cell.test_set])
    }
    return [
        Table2Row(f"{WORD_BY_WORD} substitution", "measured", {pair: cells.get(pair, Table2Cell()) for pair in pairs})
    ] * bool(cells)


def rows(measured: Sequence[Measured]) -> list[Table2Row]:
    """Returns the printed rows, then the measured ones; the paper's language pairs come before any others."""
    pairs = list(dict.fromkeys([*paper.PAIRS, *(cell.pair for cell in measured)]))
    by_cell = {(cell.pair, cell.model): cell for cell in measured}
    models = [
        Table2Row(name, "measured", {pair: _measured(by_cell.get((pair, model))) for pair in pairs})
        for model, name in MEASURED_NAMES.items()
    ]
    return [_printed(row, pairs) for row in paper.TABLE_2] + _word_by_word(measured, pairs) + models


def compute(measured: Sequence[Measured]) -> Table2:
    """Computes the table of what was measured."""
    return Table2(rows(measured), differences(measured), table2_notes(measured))


def render_terminal(table: Table2, width: int) -> RenderableType:
    """Renders the table for a terminal of `width` columns, with the costs beside the scores if there is room."""
    grids = [part for columns in _parts(len(table.columns), width) for part in (_grid(table, columns), "")]
    return Group(*grids, notes.render_terminal(table.differences, table.notes, FOOTNOTES))


def _parts(n_columns: int, width: int) -> list[slice]:
    """Returns the columns of each of the grids beneath each other: all in one, or scores and costs by themselves.

    Where these are too wide too, they are cut between two language pairs.
    """
    room = max(2, (width - NAMES_WIDTH) // (COLUMN_WIDTH + 1) // 2 * 2)
    if n_columns <= room:
        return [slice(0, n_columns)]
    half = n_columns // 2
    return [slice(at, min(at + room, end)) for end in (half, n_columns) for at in range(end - half, end, room)]


def _grid(table: Table2, columns: slice) -> RichTable:
    """Renders the rows of the table with some of its columns."""
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left", show_edge=False)
    grid.add_column("Table 2", no_wrap=True)
    headings = {
        "paper BLEU": "paper\nBLEU",
        "sacreBLEU": "sacre-\nBLEU",
        "cost, paper's way": "FLOP,\npaper's",
        "cost, counted": "FLOP,\ncounted",
    }
    for pair, kind in table.columns[columns]:
        grid.add_column(f"{pair}\n{headings[kind]}", justify="right", no_wrap=True, width=COLUMN_WIDTH)
    for origin, title in (("paper", "as printed in the paper"), ("measured", "measured here")):
        grid.add_row(Text(title, style="dim italic"))
        for row in (row for row in table.rows if row.origin == origin):
            style = "bold" if origin == "measured" else ""
            texts = [Text(text, style="dim" if text == NOT_RUN else style) for text in row.texts()[columns]]
            grid.add_row(Text(row.name, style=style), *texts)
        if origin == "paper":
            grid.add_section()
    return grid


def render_markdown(table: Table2) -> str:
    """Renders the table, and everything beneath it, as a Markdown document."""
    lines = ["# Table 2", "", notes.markdown_row(["model", *(f"{pair} {kind}" for pair, kind in table.columns)])]
    lines.append("|---|" + "---:|" * len(table.columns))
    for origin, suffix in (("paper", ""), ("measured", ", measured")):
        for row in (row for row in table.rows if row.origin == origin):
            lines.append(notes.markdown_row([row.name + suffix, *row.texts()]))
    lines += ["", "Costs are in FLOP.", *notes.render_markdown(table.differences, table.notes, FOOTNOTES)]
    return "\n".join(lines) + "\n"
