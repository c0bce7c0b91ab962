"""Computes Table 3 (§6.2): what each design choice of the base model is worth, printed and measured side by side.

    python -m workflows.reproduce_table3

A measured figure comes from an artifact's file. A row that was not run or failed says so. A printed row is
compared with the printed base, and a measured row with the measured base.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from model.config import BASE
from pipeline.store.artifact import JsonArtifact
from pipeline.store.figures import NOT_DEFINED
from workflows import paper
from workflows.paper import KINDS, Kind, group
from workflows.quantities import duration, flop_text
from workflows.tables import orderings
from workflows.tables.convergence import MAX_FALL, last_fall
from workflows.tables.differences import Difference, differences, reading_notes
from workflows.tables.measurements import Translation
from workflows.tables.orderings import KIND_NAMES, Noise, OrderingOutcome, Standing
from workflows.tables.text_table import Column, Line, TextTable, numbers

State = Literal["measured", "not run", "failed"]
SPLIT = "dev"
"""The split whose scores stand in the table."""
PRINTED_DIGITS: dict[Kind, int] = {"perplexity": 2, "bleu": 1}
COLUMNS = [
    Column("row"),
    Column("change"),
    Column("change in the paper", on_terminal=False),
    *numbers("paper", "Δ", block="perplexity"),
    *numbers("here", "Δ", block="perplexity", is_measured=True),
    *numbers("paper", "Δ", block="BLEU"),
    *numbers("here", "Δ", "sacreBLEU", block="BLEU", is_measured=True),
    *numbers("paper", block="parameters"),
    *numbers("here", block="parameters", is_measured=True),
    *numbers("time", "FLOP", block="training", is_measured=True),
]
SCALED = ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "dropout")
"""What rows scale with their base."""


@dataclass(frozen=True)
class RowTrainings:
    """A row and its trainings, one a seed, or why it has none."""

    name: str
    difference: Mapping[str, Any]
    """From base, as trained here."""
    trainings: tuple[Translation, ...]
    reason: str = ""
    """Why it, or some of its trainings, failed."""


@dataclass(frozen=True)
class Figure:
    """A measured figure: the mean over the seeds and, where there are several seeds, the sample standard deviation."""

    mean: float
    deviation: float | None = None

    @classmethod
    def over(cls, values: Sequence[float]) -> "Figure":
        """Summarizes one value for each seed."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)

    def text(self) -> str:
        """Formats the mean and its deviation, which few seeds give to no more than two digits."""
        if self.deviation is None:
            return f"{self.mean:.2f}"
        decimals = 2 if self.deviation < 1 else 1 if self.deviation < 10 else 0
        return f"{self.mean:.2f}±{self.deviation:.{decimals}f}"


@dataclass(frozen=True)
class Printed:
    """A row of the paper: its figures with the digits that are printed, and their differences from base."""

    change: str
    perplexity: str
    bleu: str
    parameters_millions: int | None
    from_base: Mapping[Kind, float]


@dataclass(frozen=True)
class Trained:
    """A row as measured here, by the last checkpoint on the dev set; perplexity is per word-piece."""

    perplexity: Figure
    bleu: Figure
    """Paper BLEU, as in the paper's column; sacreBLEU where that is not defined."""
    sacrebleu: Figure
    parameters: int
    updates: int
    seeds: tuple[int, ...]
    train_s: float
    """The total over all trainings of the row, like `counted_flop`."""
    counted_flop: float
    from_base: Mapping[Kind, float] | None
    """None where base was not measured."""
    is_beyond_noise: Mapping[Kind, bool] | None = None
    """Whether the row differs from base by more than the noise between seeds; None where that was not measured."""
    last_fall: float | None = None
    """The fraction by which dev perplexity fell over the last tenth of the updates, the mean over the seeds; None where
    it was not measured often enough."""
    has_converged: bool | None = None
    """Whether that is little enough; None where it is not known."""
    is_paper_bleu: bool = True


@dataclass(frozen=True)
class Table3Row:
    """A row of the table."""

    name: str
    change: str
    """What differs from the base trained here, in the paper's symbols."""
    state: State
    reason: str
    printed: Printed | None
    """None for a row of the user's own."""
    trained: Trained | None

    def texts_of(self, kind: Kind) -> list[str]:
        """Returns a figure as printed and as measured, each with its difference from base."""
        printed = [str(getattr(self.printed, kind)), ""] if self.printed else ["", ""]
        here = [getattr(self.trained, kind).text() if self.trained else self.state, ""]
        if kind == "bleu" and self.trained and not self.trained.is_paper_bleu:
            here[0] = NOT_DEFINED
        if self.printed and self.name != "base":
            printed[1] = f"{self.printed.from_base[kind]:+z.{PRINTED_DIGITS[kind]}f}"
        if self.trained and self.trained.from_base and self.name != "base":
            here[1] = f"{self.trained.from_base[kind]:+z.2f}"
        return printed + here

    def texts(self) -> list[str]:
        """Returns the texts to show, in the order of `COLUMNS`."""
        trained, state = self.trained, self.state
        printed = self.printed.change if self.printed else ""
        is_falling = trained is not None and trained.has_converged is False
        change = "\n".join(filter(None, (self.change, "not converged" if is_falling else "")))
        size = self.printed.parameters_millions if self.printed else None
        measured: list[str] = [state] * 4
        if trained:
            seeds = len(trained.seeds)
            costs = duration(trained.train_s / seeds), flop_text(trained.counted_flop / seeds)
            measured = [f"{trained.sacrebleu.mean:.2f}", f"{trained.parameters / 1e6:.1f}", *costs]
        scores = [*self.texts_of("perplexity"), *self.texts_of("bleu"), measured[0]]
        return [self.name, change, printed, *scores, str(size or ""), *measured[1:]]


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation of measured and printed figures over the rows that have both, at least three."""

    kind: Kind
    rows: int
    spearman: float


@dataclass(frozen=True)
class Table3:
    """The table with everything that stands beneath it."""

    rows: list[Table3Row]
    orderings: list[OrderingOutcome]
    correlations: list[Correlation]
    differences: list[Difference]
    notes: list[str]
    noise: Noise | None = None
    """The noise between seeds; None where base was not trained with several."""

    def figures(self) -> dict[str, float]:
        """Returns the main figures: those of base, the rows that were measured, and how their order agrees."""
        measured = {row.name: row.trained for row in self.rows if row.trained}
        figures: dict[str, float] = {}
        if base := measured.get("base"):
            bleu = "paper BLEU dev base" if base.is_paper_bleu else "sacreBLEU dev base"
            figures |= {"dev perplexity base": base.perplexity.mean, bleu: base.bleu.mean}
        figures["rows measured"] = len(measured)
        return figures | {
            f"rank correlation by {correlation.kind}": correlation.spearman for correlation in self.correlations
        }

    def shown(self) -> list[TextTable]:
        """Returns every row, as printed beside as measured, and the claims where there are any."""
        before = [None, *(group(row.name) for row in self.rows)]
        lines = [
            Line(row.texts(), begins=group(row.name) != last) for row, last in zip(self.rows, before, strict=False)
        ]
        explained = "Parameters are in millions. Time and FLOP, counted in matrix products, are those of one training."
        if self.correlations:
            explained += f" {correlation_text(self.correlations)}"
        claims = [orderings.claims(self.orderings)] * bool(self.orderings)
        return [TextTable("Table 3", COLUMNS, lines, explained), *claims]


class Table3Artifact(JsonArtifact[Table3]):
    """`table3.json`, `table3.md` and `report.html`."""

    figures_file = "table3.json"


def compute(rows: Sequence[RowTrainings]) -> tuple[Table3, dict[str, list[Translation]]]:
    """Computes the table; returns it with what was measured of each training, by row."""
    cells = {row.name: list(row.trainings) for row in rows if row.trainings}
    base = cells.get("base", [])
    noise = Noise.between([_standing([cell]).figures for cell in base])
    lines = [_row(row, cells.get(row.name), base, noise) for row in rows]
    table = Table3(
        lines, _orderings(cells, noise), _correlations(lines), _differences(cells), _notes(lines, cells, noise), noise
    )
    return table, cells


def correlation_text(correlations: Sequence[Correlation]) -> str:
    """Says in a sentence how closely the measured order of the rows follows the paper's."""
    listed = ", ".join(f"{of.spearman:.2f} for {KIND_NAMES[of.kind]} ({of.rows} rows)" for of in correlations)
    return (
        f"Spearman's rank correlation between the figures here and the paper's: {listed}; at 1 the rows are in the "
        "same order, at 0 the two orders are unrelated."
    )


def _row(
    row: RowTrainings, cells: Sequence[Translation] | None, base: Sequence[Translation], noise: Noise | None
) -> Table3Row:
    printed = paper.VARIATIONS.get(row.name)
    state: State = "measured" if cells else "failed" if row.reason else "not run"
    return Table3Row(
        row.name,
        paper.symbols(row.difference),
        state,
        row.reason,
        _printed(printed) if printed else None,
        _trained(cells, base, noise) if cells else None,
    )


def _printed(variation: paper.Variation) -> Printed:
    base = paper.VARIATIONS["base"]
    steps = {} if variation.updates in (None, base.updates) else {"updates": variation.updates}
    from_base: dict[Kind, float] = {
        "perplexity": round(float(variation.perplexity) - float(base.perplexity), 2),
        "bleu": round(float(variation.bleu) - float(base.bleu), 2),
    }
    change = paper.symbols({**variation.difference, **steps})
    return Printed(change, variation.perplexity, variation.bleu, variation.parameters_millions, from_base)


def _figures(cells: Sequence[Translation]) -> dict[Kind, Figure]:
    return {
        "perplexity": Figure.over([cell.dev.dev_perplexity for cell in cells]),
        "bleu": Figure.over([cell.main_bleu.deciding for cell in cells]),
    }


def _standing(cells: Sequence[Translation]) -> Standing:
    return Standing({kind: figure.mean for kind, figure in _figures(cells).items()}, len(cells))


def _trained(cells: Sequence[Translation], base: Sequence[Translation], noise: Noise | None) -> Trained:
    figures, here = _figures(cells), _standing(cells)
    of_base = _standing(base) if base else None
    falls = [fall for cell in cells if (fall := last_fall(cell.metrics, cell.run.updates)) is not None]
    fall = statistics.fmean(falls) if falls else None
    return Trained(
        figures["perplexity"],
        figures["bleu"],
        Figure.over([cell.main_bleu.sacrebleu for cell in cells]),
        cells[0].run.parameters,
        cells[0].run.updates,
        tuple(cell.settings.seed for cell in cells),
        sum(cell.run.train_s for cell in cells),
        sum(cell.costs.counted_flop for cell in cells),
        {kind: here.figures[kind] - of_base.figures[kind] for kind in KINDS} if of_base else None,
        {kind: noise.is_exceeded(kind, here, of_base) for kind in KINDS} if of_base and noise else None,
        fall,
        None if fall is None else fall <= MAX_FALL,
        all(cell.main_bleu.paper_bleu is not None for cell in cells),
    )


def _orderings(cells: Mapping[str, Sequence[Translation]], noise: Noise | None) -> list[OrderingOutcome]:
    measured = {name: _standing(trainings) for name, trainings in cells.items() if name in paper.VARIATIONS}
    printed = {
        name: Standing({kind: float(getattr(variation, kind)) for kind in KINDS})
        for name, variation in paper.VARIATIONS.items()
    }
    return orderings.outcomes(measured, printed, noise)


def _correlations(rows: Sequence[Table3Row]) -> list[Correlation]:
    correlations = []
    for kind in KINDS:
        both = [row for row in rows if row.printed and row.trained]
        printed = [float(getattr(row.printed, kind)) for row in both]
        measured = [getattr(row.trained, kind).mean for row in both]
        # Two rows are always in order or in reverse, and a column of one value has no order.
        if len(both) > 2 and min(len(set(printed)), len(set(measured))) > 1:
            spearman = statistics.correlation(_ranks(printed), _ranks(measured))
            correlations.append(Correlation(kind, len(both), spearman))
    return correlations


def _ranks(values: Sequence[float]) -> list[float]:
    """Returns the rank of each value, from 1; equal ones share the mean of their ranks."""
    return [sum(other < value for other in values) + (values.count(value) + 1) / 2 for value in values]


def _differences(cells: Mapping[str, list[Translation]]) -> list[Difference]:
    """Compares base with the paper's base; where base was not run, the first row that was run with the paper's."""
    name = "base" if "base" in cells else next(iter(cells), None)
    if name is None:
        return []
    return differences(cells[name][:1], lambda _pair, model: paper.variation_experiment(model))


def _notes(rows: Sequence[Table3Row], cells: Mapping[str, list[Translation]], noise: Noise | None) -> list[str]:
    measured = [cell for trainings in cells.values() for cell in trainings]
    counts = sorted({len(trainings) for trainings in cells.values()})
    seeds = " to ".join(map(str, dict.fromkeys([*counts[:1], *counts[-1:]])))
    each = (
        "one training with one seed"
        if not counts or counts[-1] == 1
        else f"the mean of {seeds} seeds ± their standard deviation; time and FLOP are the mean of its trainings"
    )
    notes = [
        "Δ is the difference from base in the same column. Perplexity is per word-piece, and vocabularies differ in "
        "their pieces, so printed and measured perplexities cannot be compared; the signs of their differences can.",
        "BLEU is paper BLEU of the last checkpoint on the development set, as in the paper; sacreBLEU is beside it.",
        f"Each measured row is {each}.",
        *(orderings.notes(noise) if cells else []),
    ]
    if falling := [row.name for row in rows if row.trained and row.trained.has_converged is False]:
        notes.append(
            f"Not converged ({', '.join(falling)}): over the last tenth of its updates, the row's dev perplexity still "
            f"fell by more than {100 * MAX_FALL:g} %, so its place among the rows may be another after more of them."
        )
    if "base" in cells:
        config = cells["base"][0].config
        ratios = {name: getattr(config, name) / getattr(BASE, name) for name in SCALED}
        if set(ratios.values()) != {1.0}:
            sizes = ", ".join(
                f"{paper.SYMBOLS[name]} {getattr(config, name)} (× {ratio:g})" for name, ratio in ratios.items()
            )
            notes.append(
                f"Base does not have the paper's sizes: {sizes}. The rows keep the paper's ratios to base; label "
                "smoothing and positions are as printed."
            )
    elif cells:
        notes.append("Base was not measured, so no measured row has a difference from it.")
    if "E" in cells:
        notes.append(
            "Row E: learned positions are one table for encoder and decoder and begin at random with a standard "
            "deviation of d_model^-0.5, small beside sinusoids (0.71 rms); the paper says neither."
        )
    notes += reading_notes(measured)
    notes += [f"{row.name} {'is incomplete' if row.trained else row.state}: {row.reason}" for row in rows if row.reason]
    return notes
