"""Computes Table 2 (§6.1): BLEU and training cost, the paper's printed rows above the measured ones.

    python -m workflows.reproduce_table2

A measured number comes from an artifact's file; a cell that was not run says so. The differences from the paper, and
notes on how to read the scores, always stand beneath the table.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from pipeline.evaluation.search_choice import DecodingChoiceFigures
from pipeline.store.artifact import JsonArtifact
from pipeline.store.figures import NOT_DEFINED
from workflows import paper
from workflows.engine.dag import to_artifact
from workflows.quantities import flop_text
from workflows.tables.differences import Difference, differences, table2_notes
from workflows.tables.measurements import Translation
from workflows.tables.text_table import NOT_MEASURED, NOT_RUN, Column, Line, TextTable, by_origin, numbers

MEASURED_NAMES = {"base": "Transformer (base)", "big": "Transformer (big)"}
WORD_BY_WORD = "word-by-word"
OTHER_TEXT = ("training data", "test set")
"""The aspects in which a cell of the same text as the paper's does not differ."""


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
        """Returns the texts to show: paper BLEU, sacreBLEU, cost by the paper's method, counted cost."""
        if self.not_run:
            return (NOT_RUN,) * 4
        if self.printed_bleu:
            # A figure space where the paper prints one decimal keeps the points of the column aligned.
            bleu = self.printed_bleu + "\u2007" * (self.printed_bleu[-2] == ".")
            return bleu, "", "" if self.paper_way_flop is None else flop_text(self.paper_way_flop), ""
        bleu, sacre = ("" if score is None else f"{score:.2f}" for score in (self.paper_bleu, self.sacrebleu))
        bleu = NOT_DEFINED if sacre and not bleu else bleu
        cost, counted = ("" if flop is None else flop_text(flop) for flop in (self.paper_way_flop, self.counted_flop))
        return bleu, sacre, NOT_MEASURED if counted and not cost else cost, counted


@dataclass(frozen=True)
class Table2Row:
    """A row of the table."""

    name: str
    origin: Literal["paper", "measured"]
    cells: dict[str, Table2Cell]
    """The cells by language pair, in the same order in every row."""

    def texts(self) -> list[str]:
        """Returns the texts to show: the name, the scores of each language pair, then its costs."""
        texts = [cell.texts() for cell in self.cells.values()]
        return [
            self.name,
            *(text for four in texts for text in four[:2]),
            *(text for four in texts for text in four[2:]),
        ]


@dataclass(frozen=True)
class Table2:
    """The table with everything that stands beneath it."""

    rows: list[Table2Row]
    differences: list[Difference]
    notes: list[str]
    choices: Mapping[str, DecodingChoiceFigures] = field(default_factory=dict)
    """The searches that were chosen on the dev set, by the cell's label, e.g. `EN-DE base`."""

    @property
    def is_of_other_text(self) -> bool:
        """Whether its figures are of another text than the paper's, so that they cannot be compared."""
        return any(difference.what in OTHER_TEXT for difference in self.differences)

    def shown(self) -> list[TextTable]:
        """Returns the scores of each language pair, and its costs, printed rows above measured ones.

        Beneath it stands what was chosen on the dev set, if anything was.
        """
        columns = [Column("model")]
        for headings in (("paper BLEU", "sacreBLEU"), ("FLOP, paper's", "FLOP, counted")):
            for pair in self.rows[0].cells:
                columns += numbers(*headings, block=pair.upper())
        lines = by_origin(
            *([row.texts() for row in self.rows if row.origin == origin] for origin in ("paper", "measured"))
        )
        explanation = "Training cost is in FLOP, by the paper's method and as counted."
        return [TextTable("Table 2", columns, lines, explanation), *chosen_searches(self.choices)]

    def figures(self) -> dict[str, float]:
        """Returns paper BLEU of each measured cell, else sacreBLEU, e.g. {"paper BLEU EN-DE base": 27.3, ...}."""
        names = {row: model for model, row in MEASURED_NAMES.items()}
        measured = [row for row in self.rows if row.origin == "measured"]
        return {
            f"{name} {pair.upper()} {names.get(row.name, WORD_BY_WORD)}": score
            for row in sorted(measured, key=lambda row: row.name not in names)
            for pair, cell in row.cells.items()
            for name, score in [("paper BLEU", cell.paper_bleu), ("sacreBLEU", cell.sacrebleu)]
            if score is not None and (name == "paper BLEU" or cell.paper_bleu is None)
        }


def chosen_searches(choices: Mapping[str, DecodingChoiceFigures]) -> Iterator[TextTable]:
    """Yields a table of what each search scored on the dev set: a line for each beam, a column for each α."""
    penalties = sorted({search.length_penalty for choice in choices.values() for search in choice.scores})
    lines = []
    for label, choice in choices.items():
        best = choice.best
        for beam_size, searches in groupby(choice.scores, key=lambda search: search.beam_size):
            bleu = {search.length_penalty: f"{search.deciding[1]:.2f}" for search in searches}
            chosen = f"beam {beam_size}, α {best.length_penalty:g}" if beam_size == best.beam_size else ""
            lines.append(Line([label, f"{beam_size}", *(bleu.get(penalty, "") for penalty in penalties), chosen]))
    if lines:
        columns = [Column("model"), *numbers("beam", *(f"α {penalty:g}" for penalty in penalties)), Column("chosen")]
        explanation = (
            "Paper BLEU of the dev set, or sacreBLEU where that is not defined; the test sets were decoded so."
        )
        yield TextTable("Chosen on the dev set: beam and α", columns, lines, explanation)


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


def _measured(measured: Translation | None) -> Table2Cell:
    if measured is None:
        return Table2Cell(not_run=True)
    scores, cost = measured.main_bleu, measured.costs
    return Table2Cell(scores.paper_bleu, scores.sacrebleu, cost.paper_way_flop, cost.counted_flop)


def _word_by_word(measured: Sequence[Translation], pairs: Sequence[str]) -> list[Table2Row]:
    cells = {
        cell.pair: Table2Cell(scores.paper_bleu, scores.sacrebleu) for cell in measured if (scores := cell.baseline)
    }
    return [
        Table2Row(f"{WORD_BY_WORD} substitution", "measured", {pair: cells.get(pair, Table2Cell()) for pair in pairs})
    ] * bool(cells)


def rows(measured: Sequence[Translation]) -> list[Table2Row]:
    """Returns the printed rows, then the measured ones; the paper's language pairs come before any others."""
    pairs = list(dict.fromkeys([*paper.PAIRS, *(cell.pair for cell in measured)]))
    by_cell = {(cell.pair, cell.model): cell for cell in measured}
    models = [
        Table2Row(name, "measured", {pair: _measured(by_cell.get((pair, model))) for pair in pairs})
        for model, name in MEASURED_NAMES.items()
    ]
    return [_printed(row, pairs) for row in paper.TABLE_2] + _word_by_word(measured, pairs) + models


def compute(measured: Sequence[Translation]) -> Table2:
    """Computes the table of what was measured."""
    choices = {cell.label: to_artifact(cell.decoding_choice).load() for cell in measured if cell.decoding_choice}
    return Table2(rows(measured), differences(measured), table2_notes(measured), choices)
