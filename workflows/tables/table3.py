"""Computes Table 3 (§6.2): ablations of the base model, printed and measured side by side.

    python -m workflows.reproduce_table3

Measured numbers come from artifacts' files; rows that failed or were not run say so. Printed rows are compared with
the printed base, measured rows with the measured base.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pipeline.settings import AveragingSettings
from workflows import paper
from workflows.paper import KIND_NAMES, KINDS, Kind, group
from workflows.profiles.translation import WMT14
from workflows.quantities import key
from workflows.tables.differences import differences, printed
from workflows.tables.facts import Fact
from workflows.tables.measured import Cell, Measured, measured
from workflows.tables.provenance import reading_notes, seeds_text
from workflows.tables.table import (
    MILLION,
    NAME,
    Column,
    Difference,
    Missing,
    Results,
    ResultsArtifact,
    Row,
    Table,
    Value,
)
from workflows.tables.table3_rows import rows as grid_rows

PRINTED: dict[Kind, str] = {"perplexity": ".2f", "bleu": ".1f"}
"""The paper's decimals."""
MEASURED: dict[Kind, str] = {"perplexity": "perplexity", "bleu": "paper_bleu"}
"""Keys of the values measured here."""


def _scores(kind: Kind) -> list[Column]:
    """Returns the columns of a metric: printed, with its difference from base, and both as measured."""
    name = KIND_NAMES[kind]
    return [
        Column(f"{kind}.paper", "paper", name, PRINTED[kind]),
        Column(f"{kind}.paper_delta", "Δ", name, f"+z{PRINTED[kind]}"),
        Column(MEASURED[kind], "here", name, ".2f", spread=f"{kind}.deviation", is_measured=True),
        Column(f"{kind}.delta", "Δ", name, "+z.2f", is_measured=True),
    ]


COLUMNS = [
    Column(NAME, "row"),
    Column("change", "change"),
    Column("change.paper", "change in the paper", on_terminal=False),
    *_scores("perplexity"),
    *_scores("bleu"),
    Column("sacrebleu", "sacreBLEU", KIND_NAMES["bleu"], ".2f", is_measured=True),
    Column("parameters.paper", "paper", "parameters", ".0f", MILLION),
    Column("parameters", "here", "parameters", ".1f", MILLION, is_measured=True),
    Column("train_s", "time", "training", unit="s", is_measured=True),
    Column("counted_flop", "FLOP", "training", unit="FLOP", is_measured=True),
]
LAST_PART = 0.1
"""The last fraction of the updates, over which the fall of dev perplexity is computed."""
MAX_FALL = 0.05
"""A run whose dev perplexity falls by more than this fraction over the last part has not converged."""


@dataclass(frozen=True)
class RowTrainings:
    """A row and its runs, one per seed, or the reason why it has none."""

    name: str
    difference: Mapping[str, Any]
    """Differences from the base trained here."""
    trainings: tuple[Cell, ...]
    reason: str = ""
    """Why the row, or some of its runs, failed."""


class Table3Artifact(ResultsArtifact):
    """`table3.json`, `table3.md` and `report.html`."""

    record_file = "table3.json"


def compute(rows: Sequence[RowTrainings]) -> tuple[Results, dict[str, list[Measured]]]:
    """Computes the table; returns it with the measured runs by row."""
    cells = {row.name: [measured(each) for each in row.trainings] for row in rows if row.trainings}
    means: Means = {
        name: {kind: statistics.fmean(_figure(kind, model) for model in of_row) for kind in KINDS}
        for name, of_row in cells.items()
    }
    lines = [_row(row, cells, means) for row in rows]
    correlations = _correlations(means)
    explained = "Parameters are in millions. Time and FLOP (counted in matrix products) are for one run."
    if correlations:
        listed = ", ".join(f"{rho:.2f} for {KIND_NAMES[kind]} ({n} rows)" for kind, (rho, n) in correlations.items())
        explained += f" Spearman's rank correlation between the measured values and the paper's: {listed}."
    table, notes = Table("Table 3", COLUMNS, lines, explained), _notes(lines, cells)
    return Results([table], _differences(cells), notes, _metrics(cells, means, correlations)), cells


Means = Mapping[str, Mapping[Kind, float]]
"""Metrics of each measured row, means over its seeds."""


def _row(row: RowTrainings, cells: Mapping[str, Sequence[Measured]], means: Means) -> Row:
    variation = paper.VARIATIONS.get(row.name)
    change = paper.symbols(row.difference)
    values = _printed(variation) if variation else {}
    if row.trainings:
        values |= _measured(row.name, cells[row.name], means)
    else:
        state = Missing.FAILED if row.reason else Missing.NOT_RUN
        values |= {column.key: state for column in COLUMNS if column.is_measured}
    if values.get("has_converged") is False:
        change = "\n".join(filter(None, (change, "not converged")))
    return Row(row.name, "", {"change": change, **values, "reason": row.reason}, group=group(row.name))


def _printed(variation: paper.Variation) -> dict[str, Value]:
    base = paper.VARIATIONS["base"]
    steps = {} if variation.updates in (None, base.updates) else {"updates": variation.updates}
    values: dict[str, Value] = {"change.paper": paper.symbols({**variation.difference, **steps})}
    if variation.parameters_millions:
        values["parameters.paper"] = 1_000_000 * variation.parameters_millions
    for kind in KINDS:
        values[f"{kind}.paper"] = figure = float(getattr(variation, kind))
        if variation is not base:
            values[f"{kind}.paper_delta"] = round(figure - float(getattr(base, kind)), 2)
    return values


def _measured(name: str, cells: Sequence[Measured], means: Means) -> dict[str, Value]:
    """Returns means over the seeds, of the last checkpoint on the dev set; perplexity is per word-piece."""
    here, base = means[name], means.get("base")
    falls = [fall for model in cells if (fall := last_fall(model.metrics, model.run.updates)) is not None]
    fall = statistics.fmean(falls) if falls else None
    values: dict[str, Value] = {
        "perplexity": here["perplexity"],
        "paper_bleu": here["bleu"],
        "sacrebleu": statistics.fmean(model.main.sacrebleu for model in cells),
        "parameters": cells[0].run.parameters,
        "updates": cells[0].run.updates,
        "seeds": len(cells),
        "train_s": statistics.fmean(model.run.train_s for model in cells),
        "counted_flop": statistics.fmean(model.costs.counted_flop for model in cells),
        "last_fall": fall,  # the fraction by which dev perplexity fell over the last tenth of the updates
        "has_converged": None if fall is None else fall <= MAX_FALL,
    }
    for kind in KINDS:
        if len(cells) > 1:
            values[f"{kind}.deviation"] = statistics.stdev(_figure(kind, model) for model in cells)
        if base and name != "base":
            values[f"{kind}.delta"] = round(here[kind] - base[kind], 9)  # nothing on equal scores
    if any(model.main.paper_bleu is None for model in cells):
        values["paper_bleu"] = Missing.NOT_DEFINED
    return values


def _figure(kind: Kind, model: Measured) -> float:
    return model.dev.dev_perplexity if kind == "perplexity" else model.main.deciding[1]


def _correlations(means: Means) -> dict[Kind, tuple[float, int]]:
    """Returns Spearman's rank correlation of measured and printed values, and the number of rows: at least three."""
    correlations = {}
    both = [name for name in means if name in paper.VARIATIONS]
    for kind in KINDS:
        printed = [float(getattr(paper.VARIATIONS[name], kind)) for name in both]
        measured = [means[name][kind] for name in both]
        # Two rows always correlate at 1 or -1, and a constant column has no order.
        if len(both) > 2 and min(len(set(printed)), len(set(measured))) > 1:
            correlations[kind] = statistics.correlation(_ranks(printed), _ranks(measured)), len(both)
    return correlations


def _ranks(values: Sequence[float]) -> list[float]:
    """Returns the rank of each value, from 1; ties share their mean rank."""
    return [sum(other < value for other in values) + (values.count(value) + 1) / 2 for value in values]


def last_fall(metrics: Sequence[Mapping[str, Any]], updates: int) -> float | None:
    """Returns the fraction by which dev perplexity fell over the last tenth of the updates; negative if it rose.

    `metrics` are the lines of `metrics.jsonl`. If dev perplexity was not measured exactly at nine tenths of the
    updates, its logarithm is interpolated between the neighbouring measurements, which overestimates the fall of a
    flattening curve. Returns None if nothing was measured by then.
    """
    curve = [(line["update"], math.log(line["dev_perplexity"])) for line in metrics if "dev_perplexity" in line]
    start = (1 - LAST_PART) * updates
    for (update, before), (next_update, after) in pairwise(curve):
        if update <= start < next_update:
            return -math.expm1(curve[-1][1] - (before + (after - before) * (start - update) / (next_update - update)))
    return None


def _metrics(
    cells: Mapping[str, Sequence[Measured]], means: Means, correlations: Mapping[Kind, tuple[float, int]]
) -> dict[str, float]:
    """Returns base's metrics, the number of measured rows, and the rank correlations."""
    metrics: dict[str, float] = {}
    if base := means.get("base"):
        bleu, _ = cells["base"][0].main.deciding
        metrics = {key("dev_perplexity", "base"): base["perplexity"], key(bleu, "dev base"): base["bleu"]}
    metrics["rows measured"] = len(means)
    return metrics | {f"rank correlation by {kind}": rho for kind, (rho, _) in correlations.items()}


def in_table_3(model: Measured) -> dict[str, Fact]:
    """Returns the facts of the paper's experiment for a row, or base's for a row that the paper lacks."""
    (row,) = grid_rows(WMT14.grid, model.cell.model if model.cell.model in paper.VARIATIONS else "base")
    return printed(row.training, AveragingSettings(last=1), WMT14.decoding, paper.facts("variation", row.name))


def _differences(cells: Mapping[str, list[Measured]]) -> list[Difference]:
    """Compares base with the paper's base; if base was not run, the first row that was with the paper's."""
    return differences((cells.get("base") or next(iter(cells.values()), []))[:1], in_table_3)


def _notes(rows: Sequence[Row], cells: Mapping[str, list[Measured]]) -> list[str]:
    models = [model for trainings in cells.values() for model in trainings]
    notes = [
        "Δ is the difference from base in the same column. Perplexity is per word-piece and vocabularies differ, so "
        "printed and measured perplexities are not comparable; the signs of their differences are.",
        "BLEU is Moses BLEU of the last checkpoint on the development set, as in the paper, with sacreBLEU beside it.",
        f"Each measured row is {seeds_text(cells.values())}.",
        *([_noise(cells)] if cells else []),
    ]
    if falling := [row.name for row in rows if row.values.get("has_converged") is False]:
        notes.append(
            f"Not converged ({', '.join(falling)}): dev perplexity still fell by more than {100 * MAX_FALL:g}% over "
            "the last tenth of the updates, so the row's rank may change with more updates."
        )
    if "E" in cells:
        notes.append(
            "Row E: learned positions are one table for encoder and decoder, initialized with a standard deviation of "
            "d_model^-0.5, small beside sinusoids (0.71 rms). The paper states neither."
        )
    notes += reading_notes(models)
    notes += [
        f"{row.name} {'is incomplete' if row.name in cells else Missing.FAILED}: {row.values['reason']}"
        for row in rows
        if row.values["reason"]
    ]
    return notes


def _noise(cells: Mapping[str, list[Measured]]) -> str:
    """States the standard deviations between seeds."""
    values = [[model.dev.dev_nll for model in of_row] for of_row in cells.values()]
    if not (deviations := [statistics.stdev(of_row) for of_row in values if len(of_row) > 1]):
        return (
            "Every row was trained with one seed, so any difference may be chance: "
            "--seeds 3 trains every row three times, --set grid.base_seeds=3 only base."
        )
    return (
        f"Standard deviations between a row's seeds are {min(deviations):.4f} to {max(deviations):.4f} nats per token. "
        "aiayn claims judges the paper's claims by seeds.csv."
    )
