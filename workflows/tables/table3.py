"""Table 3 (§6.2): what each choice of the base model is worth, printed and measured side by side.

    python -m workflows.reproduce_table3

A measured figure comes from an artifact's file. A row that was not run, failed or was stopped says so. Differences from
base are those of one table: a printed row's from the printed base, a measured row's from the measured base.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from pydantic import TypeAdapter
from scipy.stats import spearmanr

from model.config import BASE
from pipeline.store.artifact import Artifact
from workflows import paper
from workflows.tables.differences import Difference, differences, reading_notes
from workflows.tables.measurements import Measured, MeasuredInputs

Kind = Literal["perplexity", "bleu"]
KINDS: tuple[Kind, ...] = ("perplexity", "bleu")
State = Literal["measured", "not run", "failed", "stopped"]
SPLIT = "dev"
"""What is scored."""
SCALED = ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v")


@dataclass(frozen=True)
class RowInputs:
    """A row as it was run: artifacts of its trainings, one a seed, or why it has none."""

    name: str
    difference: Mapping[str, Any]
    """From base, as trained here."""
    trainings: tuple[MeasuredInputs, ...]
    state: State = "measured"
    reason: str = ""
    """Why it failed or was stopped."""


@dataclass(frozen=True)
class Figure:
    """A measured figure: the mean over the seeds and, where there are several, the sample standard deviation."""

    mean: float
    deviation: float | None = None

    @classmethod
    def over(cls, values: Sequence[float]) -> "Figure":
        """Of one value a seed."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class Printed:
    """A row of the paper: figures with its digits, and what they differ from base by."""

    change: str
    perplexity: str
    bleu: str
    parameters_millions: int | None
    from_base: Mapping[Kind, float]


@dataclass(frozen=True)
class Trained:
    """A row as measured here: perplexity a piece and BLEU on the dev set, of the last checkpoint."""

    perplexity: Figure
    bleu: Figure
    """Paper BLEU, as the paper's column."""
    sacrebleu: Figure
    parameters: int
    updates: int
    seeds: tuple[int, ...]
    train_s: float
    """Of all its trainings together, as are the next two."""
    counted_flop: float
    overhead_s: float | None
    """Of training stages outside their loops: what Ray takes to start and end them; None where it was not recorded."""
    from_base: Mapping[Kind, float] | None
    """None where base was not measured."""


@dataclass(frozen=True)
class Table3Row:
    """A line of the table."""

    name: str
    change: str
    """From base here, in the paper's symbols."""
    state: State
    reason: str
    printed: Printed | None
    """None for a row of the user's own."""
    trained: Trained | None


@dataclass(frozen=True)
class OrderingOutcome:
    """What §6.2 says of some rows, and whether their figures bear it out; None where one was not measured."""

    said: str
    rows: tuple[str, ...]
    """Each better than the one before."""
    printed: Mapping[Kind, bool]
    measured: Mapping[Kind, bool | None]


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation of measured and printed figures over the rows that have both: three at least."""

    kind: Kind
    rows: int
    spearman: float


@dataclass(frozen=True)
class Table3:
    """The table with all that is told beneath it."""

    rows: list[Table3Row]
    orderings: list[OrderingOutcome]
    correlations: list[Correlation]
    differences: list[Difference]
    notes: list[str]


class Table3Artifact(Artifact):
    """`table3.json`, `table3.md` and `report.html`."""

    figures_file = "table3.json"

    def load(self) -> Table3:
        """What `table3.json` holds."""
        return TypeAdapter(Table3).validate_python(self.read_json("table3.json"))


def compute(rows: Sequence[RowInputs]) -> tuple[Table3, dict[str, list[Measured]]]:
    """The table, and by row what was measured of each of its trainings."""
    measured = {row.name: _measured(row) for row in rows}
    cells = {name: found for name, found in measured.items() if found}
    base = cells.get("base")
    lines = [_row(row, cells.get(row.name), base) for row in rows]
    return Table3(lines, _orderings(lines), _correlations(lines), _differences(cells), _notes(lines, cells)), cells


def to_json(table: Table3) -> dict[str, object]:
    """As JSON values; `Table3Artifact.load` reads them."""
    value: dict[str, object] = TypeAdapter(Table3).dump_python(table, mode="json")
    return value


def value_of(row: Table3Row, kind: Kind, origin: Literal["printed", "measured"]) -> float | None:
    """Its perplexity or BLEU in one of the two columns."""
    if origin == "printed":
        return float(getattr(row.printed, kind)) if row.printed else None
    return getattr(row.trained, kind).mean if row.trained else None


def _measured(row: RowInputs) -> list[Measured]:
    if row.state != "measured":
        return []
    return [found for inputs in row.trainings if (found := Measured.from_artifacts(inputs))]


def _row(row: RowInputs, cells: list[Measured] | None, base: list[Measured] | None) -> Table3Row:
    printed = paper.VARIATIONS.get(row.name)
    state: State = row.state if cells or row.state != "measured" else "not run"
    return Table3Row(
        row.name,
        paper.symbols(row.difference),
        state,
        row.reason,
        _printed(printed) if printed else None,
        _trained(cells, base) if cells else None,
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


def _figures(cells: Sequence[Measured]) -> dict[Kind, Figure]:
    return {
        "perplexity": Figure.over([cell.perplexity["dev_perplexity"] for cell in cells]),
        "bleu": Figure.over([cell.main_scores["paper_bleu"] for cell in cells]),
    }


def _trained(cells: list[Measured], base: list[Measured] | None) -> Trained:
    figures, of_base = _figures(cells), _figures(base) if base else None
    overheads = [_overhead_s(cell) for cell in cells]
    return Trained(
        figures["perplexity"],
        figures["bleu"],
        Figure.over([cell.main_scores["sacrebleu"] for cell in cells]),
        cells[0].run["parameters"],
        cells[0].run["updates"],
        tuple(cell.settings["seed"] for cell in cells),
        sum(cell.run["train_s"] for cell in cells),
        sum(cell.cost["counted_flop"] for cell in cells),
        None if None in overheads else sum(filter(None, overheads)),
        {kind: figures[kind].mean - of_base[kind].mean for kind in KINDS} if of_base else None,
    )


def _overhead_s(cell: Measured) -> float | None:
    """Of the training's stage outside its loop; both clocks are of the session that finished it."""
    if "loop_s" not in cell.run or "training" not in cell.manifests:
        return None
    return float(cell.manifests["training"]["seconds"] - cell.run["loop_s"])


def _orderings(rows: Sequence[Table3Row]) -> list[OrderingOutcome]:
    by_name = {row.name: row for row in rows}
    printed = {name: _printed(variation) for name, variation in paper.VARIATIONS.items()}
    found = []
    for ordering in paper.ORDERINGS:
        if not any(by_name[name].trained for name in ordering.rows if name in by_name and name != "base"):
            continue
        measured = {
            kind: _improves([value_of(by_name[name], kind, "measured") for name in ordering.rows], kind)
            if all(name in by_name for name in ordering.rows)
            else None
            for kind in KINDS
        }
        as_printed = {
            kind: bool(_improves([float(getattr(printed[name], kind)) for name in ordering.rows], kind))
            for kind in KINDS
        }
        found.append(OrderingOutcome(ordering.said, ordering.rows, as_printed, measured))
    return found


def _improves(values: Sequence[float | None], kind: Kind) -> bool | None:
    """Whether each value is better than the one before; None where one is missing."""
    if any(value is None for value in values):
        return None
    sign = -1 if kind == "perplexity" else 1
    return all(sign * (after - before) > 0 for before, after in pairwise(values))  # type: ignore[operator]


def _correlations(rows: Sequence[Table3Row]) -> list[Correlation]:
    found = []
    for kind in KINDS:
        both = [(value_of(row, kind, "printed"), value_of(row, kind, "measured")) for row in rows]
        pairs = [pair for pair in both if None not in pair]
        if len(pairs) > 2 and min(len(set(column)) for column in zip(*pairs, strict=True)) > 1:  # else there is none
            found.append(Correlation(kind, len(pairs), float(spearmanr(*zip(*pairs, strict=True)).statistic)))
    return found


def _differences(cells: Mapping[str, list[Measured]]) -> list[Difference]:
    """Of base from the paper's; where base was not run, of the first row that was."""
    name = "base" if "base" in cells else next(iter(cells), None)
    if name is None:
        return []
    printed = paper.variation_experiment(name)  # the cell's own label may carry its seed
    return differences([cells[name][0]], lambda _pair, _model: printed)


def _notes(rows: Sequence[Table3Row], cells: Mapping[str, list[Measured]]) -> list[str]:
    measured = [cell for found in cells.values() for cell in found]
    counts = sorted({len(found) for found in cells.values()})
    seeds = " to ".join(map(str, dict.fromkeys([*counts[:1], *counts[-1:]])))
    each = (
        f"one training with one seed; trainings differ by ±{paper.SEED_SPREAD_BLEU} BLEU in the paper's setting"
        if not counts or counts[-1] == 1
        else f"the mean of {seeds} seeds ± their standard deviation; its training time is that of all together"
    )
    told = [
        "Δ: difference from base in the same column. Perplexity is a word-piece's; pieces differ between vocabularies, "
        "so printed and measured perplexities do not compare, their differences in sign do.",
        "BLEU is paper BLEU on the development set, of the last checkpoint, as in the paper; sacreBLEU beside.",
        f"Each measured row is {each}.",
    ]
    if "base" in cells:
        config = cells["base"][0].config
        ratios = {name: config[name] / getattr(BASE, name) for name in SCALED}
        if set(ratios.values()) != {1.0}:
            sizes = ", ".join(f"{paper.SYMBOLS[name]} {config[name]} (× {ratio:g})" for name, ratio in ratios.items())
            told.append(
                f"Base has other sizes than the paper's: {sizes}. Rows keep the paper's ratios to base; dropout, label "
                "smoothing and positions are as printed."
            )
    elif cells:
        told.append("Base was not measured, so no measured row has a difference from it.")
    overheads = [
        row.trained.overhead_s / len(row.trained.seeds) for row in rows if row.trained and row.trained.overhead_s
    ]
    if overheads:
        mean_s, most_s = statistics.fmean(overheads), max(overheads)
        told.append(
            f"Starting and ending a training took {mean_s:.1f} s on average beside the training itself, "
            f"{most_s:.1f} s at most."
        )
    told += reading_notes(measured)
    told += [f"{row.name} {'in part' if row.trained else row.state}: {row.reason}" for row in rows if row.reason]
    return told
