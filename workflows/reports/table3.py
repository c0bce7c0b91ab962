"""Renders the report of Table 3, one HTML file, and writes it with the table: the last stage of the workflow."""

from collections.abc import Mapping, Sequence
from itertools import chain

from markupsafe import Markup

from pipeline.store.artifact import Context
from pipeline.text.corpus_statistics import CorpusStatistics
from workflows.command_line import UNKNOWN, CommandLine
from workflows.paper import KINDS, group
from workflows.reports import page
from workflows.reports.corpus import CorpusReport
from workflows.reports.learning import MEASURES, learning_curve, with_data
from workflows.reports.overview import Overview, compared, ran
from workflows.reports.svg import COLORS, INK, STYLES, Curve, curves
from workflows.reports.table3_plot import OTHER, SAME, agrees, deltas, figures, within_noise
from workflows.tables.measurements import Measured, Sample, worst_samples
from workflows.tables.orderings import KIND_NAMES
from workflows.tables.table3 import RowInputs, Table3, Table3Artifact, compute

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


def overview(table: Table3, cells: Mapping[str, Sequence[Measured]]) -> Overview:
    """Returns the first screen: each row's difference from base, in the paper and here."""
    lines = []
    for row in table.rows:
        if row.name != "base":
            deltas = [(texts[1], texts[3] or texts[2] * (not row.trained)) for texts in map(row.texts_of, KINDS)]
            lines.append([row.name, *chain.from_iterable(deltas)])
    return Overview(
        _said(table, cells),
        ran([cell for row in cells.values() for cell in row]),
        compared("difference from base, dev set", lines, *KIND_NAMES.values()),
        Markup("").join(figures(table)),
    )


def _said(table: Table3, cells: Mapping[str, Sequence[Measured]]) -> str:
    """Says in a sentence how the rows compare with the paper's."""
    if not cells:
        return "Nothing was run: the table has the paper’s figures alone."
    held = []
    for kind in KINDS:
        answers = [ordering.answer(kind, "here") for ordering in table.orderings if ordering.printed[kind]]
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
        table,
        corpora,
        cells=list(chain.from_iterable(cells.values())),
        overview=overview(table, cells),
        command=command,
        directions=_directions(table),
        colors={"same": SAME, "other": OTHER},
        drawings=_drawings(cells),
        sampled=[(cell, worst) for cell in shown[:1]],
        settings={f"{cell.label}, seed {cell.settings.seed}": page.settings(cell) for cell in shown[:1]},
    )


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
        drawn = list(dict.fromkeys([*names, "base"]))
        lines = [
            Curve(points, name, *looks[name])
            for name in drawn
            for cell in cells.get(name, [])
            if (points := learning_curve(cell, "updates", "dev_perplexity"))
        ]
        if lines:
            lowest = min(perplexity for line in lines for _, perplexity in line.points)
            limits = 0.97 * lowest, HEADROOM * max(line.points[-1][1] for line in lines)
            picture = curves(GROUPS.get(letter, letter), "updates", lines, y_limits=limits)
            drawings.append(
                with_data(picture, [cell for name in drawn for cell in cells.get(name, [])], measure, "updates")
            )
    return drawings


def tabulate(
    context: Context,
    rows: list[RowInputs],
    reports: Sequence[CorpusReport] = (),
    command: CommandLine = UNKNOWN,
) -> Table3Artifact:
    """Writes Table 3 with all of its rows, including those without figures; `reports` has the report of their text."""
    table, measured = compute(rows)
    shown = next((row.trainings[0] for row in rows if row.name in measured), None)
    worst = worst_samples(shown) if shown else ()
    report = render(table, measured, [one.load() for one in reports], command.typed, worst)
    artifact = Table3Artifact(context.folder)
    page.write(artifact, table, report)
    return artifact
