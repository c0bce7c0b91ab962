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
from workflows.reports.learning import MEASURES, learning_curve, with_data
from workflows.reports.overview import Compared, Overview, ran
from workflows.reports.svg import COLORS, INK, STYLES, Curve, curves
from workflows.reports.table3_plot import OTHER, SAME, agrees, deltas, figures, within_noise
from workflows.tables.measurements import Measured, Sample
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


def overview(table: Table3, cells: Mapping[str, Sequence[Measured]]) -> Overview:
    """Returns the first screen: each row's difference from base, in the paper and here."""
    lines = []
    for row in table.rows:
        texts = {kind: [column.text(row) for column in COLUMNS[kind]] for kind in KINDS}
        here = [texts[kind][3] or ("" if row.trained else row.state) for kind in KINDS]
        if row.name != "base":
            printed = {kind: _signed(texts[kind][1]) for kind in KINDS}
            perplexity, bleu = map(_signed, here)
            lines.append(Compared(row.name, printed["perplexity"], perplexity, (printed["bleu"], bleu)))
    trained = [cell for row in cells.values() for cell in row]
    return Overview(
        _said(table, cells),
        ran(trained),
        "difference from base, dev set",
        lines,
        Markup("").join(figures(table)),
        ("perplexity, paper", "here", "BLEU, paper", "here"),
    )


def _signed(figure: str) -> str:
    return figure.replace("-", "−")


def _said(table: Table3, cells: Mapping[str, Sequence[Measured]]) -> str:
    """Says in a sentence how the rows compare with the paper's."""
    if not cells:
        return "Nothing was run: the table has the paper’s figures alone."
    held = []
    for kind in KINDS:
        answers = [answer(ordering, kind, "here") for ordering in table.orderings if ordering.printed[kind]]
        known = [text for text in answers if text != "unknown"]
        if known:
            held.append(f"{sum(text.startswith('yes') for text in known)} of {len(known)} by {KIND_NAMES[kind]}")
    parts = [f"Of the paper’s claims that can be checked here, {' and '.join(held)} hold"] if held else []
    if directions := _directions(table):
        parts.append(f"rows that differ from base do so in the paper’s direction: {', '.join(directions)}")
    base = next((row.trained for row in table.rows if row.name == "base" and row.trained), None)
    if base:
        parts.append(f"base reaches perplexity {base.perplexity.mean:.2f} and BLEU {base.bleu.mean:.1f}")
    n_rows = f"{len(cells)} row{'s' * (len(cells) > 1)} of the table {'were' if len(cells) > 1 else 'was'} trained"
    return "; ".join(parts or [n_rows]) + "."


def render(
    table: Table3,
    cells: Mapping[str, Sequence[Measured]],
    corpora: Sequence[CorpusStatistics] = (),
    command: str = "",
    worst: Sequence[Sample] = (),
) -> str:
    """Renders the report as HTML that needs nothing outside itself.

    `cells` are the measured trainings by row, `corpora` the texts behind them, and `worst` the worst translations of
    the first of them.
    """
    shown = next(iter([cells["base"]] if "base" in cells else cells.values()), [])
    return page.render(
        "table3.html.j2",
        corpora,
        overview=overview(table, cells),
        command=command,
        costs=page.costs(chain.from_iterable(cells.values())),
        table=table,
        changes={row.name: _changes(row, cells.get(row.name, [])) for row in table.rows},
        blocks=_blocks(),
        not_measured={row.state for row in table.rows} - {"measured"},
        footnotes=frozenset(),
        cells=cells,
        shown=shown[:1],
        worst=[worst],
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
    mean, plus_minus, deviation = _signed(figure).partition("±")
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
    (measure,) = [one for one in MEASURES if one.name == "dev_perplexity"]
    for letter, names in groups.items():
        looks = {name: (COLORS[i % len(COLORS)], STYLES[i % len(STYLES)]) for i, name in enumerate(names)}
        looks["base"] = (INK, "-")
        own = list(dict.fromkeys([*names, "base"]))
        lines = [
            Curve(points, name, *looks[name])
            for name in own
            for cell in cells.get(name, [])
            if (points := learning_curve(cell, "updates", "dev_perplexity"))
        ]
        if lines:
            lowest = min(perplexity for line in lines for _, perplexity in line.points)
            limits = 0.97 * lowest, HEADROOM * max(line.points[-1][1] for line in lines)
            picture = curves(GROUPS.get(letter, letter), "updates", lines, y_limits=limits)
            drawings.append(
                with_data(picture, [cell for name in own for cell in cells.get(name, [])], measure, "updates")
            )
    return drawings
