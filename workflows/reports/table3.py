"""Renders the report of Table 3, which is one HTML file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

from markupsafe import Markup, escape

from model.config import BASE
from pipeline.text.corpus_statistics import CorpusStatistics
from workflows.paper import KINDS, SYMBOLS, Experiment, group, symbols
from workflows.reports import page
from workflows.reports.page import learning_curve
from workflows.reports.svg import COLORS, INK, Curve, curves
from workflows.reports.table3_plot import OTHER, SAME, agrees, deltas, plots, within_noise
from workflows.tables.measurements import Measured
from workflows.tables.table3 import Table3, Table3Row
from workflows.tables.table3_text import (
    CLAIM,
    CLAIMS_HEADING,
    COLUMNS,
    KIND_NAMES,
    ORDER,
    ORIGINS,
    Column,
    answer,
    convergence_mark,
    correlation_text,
    order_text,
)

GROUPS = {
    "A": "A: number of heads",
    "B": "B: key size",
    "C": "C: size of the model",
    "D": "D: dropout and label smoothing",
    "E": "E: positions",
}
"""What the paper varies under each letter."""
HEADROOM = 1.5
"""Learning curves are drawn up to this multiple of the worst final perplexity; their beginnings lie far above."""
SUBSCRIPTED = re.compile("|".join(symbol for symbol in SYMBOLS.values() if "_" in symbol))


def render(table: Table3, cells: Mapping[str, Sequence[Measured]], corpora: Sequence[CorpusStatistics] = ()) -> str:
    """Renders the report as HTML that needs nothing outside itself.

    `cells` are the measured trainings by row, and `corpora` the texts behind them.
    """
    shown = next(iter([cells["base"]] if "base" in cells else cells.values()), [])
    return page.render(
        "table3.html.j2",
        corpora,
        table=table,
        changes={row.name: _changes(row, cells.get(row.name, [])) for row in table.rows},
        blocks=_blocks(),
        not_measured={row.state for row in table.rows} - {"measured"},
        footnotes=frozenset(),
        cells=cells,
        plots=plots(table),
        correlation=correlation_text(table.correlations) if table.correlations else "",
        directions=_directions(table),
        kinds=KIND_NAMES,
        claims_heading=CLAIMS_HEADING,
        claim=CLAIM,
        order=ORDER,
        origins=ORIGINS,
        order_text=order_text,
        answer=answer,
        convergence_mark=convergence_mark,
        colors={"same": SAME, "other": OTHER},
        drawings=_drawings(cells),
        settings={f"{cell.label}, seed {cell.settings.seed}": page.settings(cell) for cell in shown[:1]},
        libraries=page.libraries(chain.from_iterable(cells.values())),
        group=group,
        subscripts=_subscripts,
        typeset=_typeset,
    )


def _blocks() -> dict[str, list[Column]]:
    """Returns the columns of figures under their common headings."""
    return {
        "perplexity": COLUMNS["perplexity"],
        "BLEU": COLUMNS["bleu"],
        "parameters / 10⁶": COLUMNS["parameters"],
        "training": COLUMNS["time"],
    }


def _changes(row: Table3Row, trainings: Sequence[Measured]) -> tuple[str, ...]:
    """Returns what a row changes here, and in the paper if that differs; for base, what it consists of."""
    here, printed = row.change, row.printed.change if row.printed else ""
    if row.name == "base" and trainings:
        cell = trainings[0]
        here = _symbols({**asdict(cell.config), **asdict(cell.settings.optimizer)})
        printed = _symbols({**asdict(BASE), "label_smoothing": Experiment.label_smoothing})
    changes = here, "" if printed == here else printed
    return tuple(re.sub("(?<!,) ", "\u00a0", change) for change in changes)  # lines break after commas only


def _symbols(settings: Mapping[str, Any]) -> str:
    return symbols({name: settings[name] for name in SYMBOLS if name != "positions"})


def _subscripts(text: str) -> Markup:
    """Sets `d_k 16` with the k as a subscript."""
    return Markup(SUBSCRIPTED.sub(lambda symbol: "{}<sub>{}</sub>".format(*symbol[0].split("_")), str(escape(text))))


def _typeset(figure: str) -> Markup:
    """Sets `-0.30` with a minus sign, and `4.92±0.11` with a small deviation."""
    mean, plus_minus, deviation = figure.replace("-", "−").partition("±")
    return escape(mean) + (Markup("<small>±{}</small>").format(deviation) if plus_minus else "")


def _directions(table: Table3) -> list[str]:
    """Says how many rows move from base as in the paper; rows that move only here, or only there, are left out.

    Where the noise between seeds is known, so are rows that do not move beyond it.
    """
    directions = []
    for kind in KINDS:
        noisy = within_noise(table, kind)
        moved = [delta for name, delta in deltas(table, kind).items() if all(delta) and name not in noisy]
        if moved:
            directions.append(f"{KIND_NAMES[kind]} {sum(map(agrees, moved))} of {len(moved)}")
    return directions


def _drawings(cells: Mapping[str, Sequence[Measured]]) -> list[Markup]:
    """Draws dev perplexity against updates: a drawing for each group of rows and base, a curve for each training."""
    groups: dict[str, list[str]] = {}
    for name in cells:
        groups.setdefault(group(name), []).append(name)
    if len(groups) > 1:
        groups.pop("base", None)
    drawings = []
    for letter, names in groups.items():
        colors = dict(zip(names, COLORS * len(names), strict=False)) | {"base": INK}
        lines = [
            Curve(points, name, colors[name])
            for name in dict.fromkeys([*names, "base"])
            for cell in cells.get(name, [])
            if (points := learning_curve(cell, "updates", "dev_perplexity"))
        ]
        if lines:
            lowest = min(perplexity for line in lines for _, perplexity in line.points)
            limits = 0.97 * lowest, HEADROOM * max(line.points[-1][1] for line in lines)
            drawings.append(curves(GROUPS.get(letter, letter), "updates", lines, legend=True, y_limits=limits))
    return drawings
