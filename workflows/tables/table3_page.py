"""Writes the page of Table 3: base in a sentence, differences from base, learning curves and translations."""

from collections.abc import Mapping, Sequence
from itertools import chain

from markupsafe import Markup
from matplotlib.axes import Axes

from pipeline.context import Context
from workflows.command_line import UNKNOWN, CommandLine
from workflows.paper import KINDS, Kind, group
from workflows.tables import page
from workflows.tables.corpus import CorpusReport
from workflows.tables.measured import Measured
from workflows.tables.plots import COLORS, INK, Point, figure, svg
from workflows.tables.table import Table
from workflows.tables.table3 import RowTrainings, Table3Artifact, compute

GROUPS = {
    "A": "A: number of heads",
    "B": "B: key size",
    "C": "C: size of the model",
    "D": "D: dropout and label smoothing",
    "E": "E: positions",
}
"""The paper's variation under each letter."""
TITLES: dict[Kind, str] = {"perplexity": "perplexity (lower is better)", "bleu": "BLEU (higher is better)"}
SAME, OTHER = COLORS[0], COLORS[1]
"""The colours of rows whose difference from base has the paper's sign, and of the other rows."""


def said(main: Table) -> str:
    """States base's scores in a sentence, or which rows were trained."""
    trained = {row.name: row for row in main.rows if row.values.get("seeds")}
    if base := trained.get("base"):
        perplexity, bleu = base.number("perplexity"), base.number("paper_bleu", "sacrebleu")
        return f"Base reaches perplexity {perplexity:.2f} and BLEU {bleu:.1f}."
    return f"Rows trained: {', '.join(trained)}." if trained else page.NOTHING_RUN


def beside(main: Table) -> str:
    """States how many rows differ from base in the paper's direction."""
    points = both_deltas(main, "perplexity")
    alike = sum(printed * measured > 0 for printed, measured in points.values())
    return f"By perplexity, {alike} of {len(points)} rows differ from base in the paper's direction." * bool(points)


def tabulate(
    context: Context, rows: list[RowTrainings], reports: Sequence[CorpusReport] = (), command: CommandLine = UNKNOWN
) -> Table3Artifact:
    """Writes Table 3 with all its rows, with results or without; `reports` holds their corpus report."""
    results, cells = compute(rows)
    main = results.tables[0]
    shown = next(iter([cells["base"]] if "base" in cells else cells.values()), [])
    explanation = (
        "Dev perplexity, one plot per group of rows and one curve per run, with base in every plot. The beginnings are "
        "cut off."
    )
    deltas = [dots(kind, points) for kind in KINDS if (points := both_deltas(main, kind))]
    return page.write(
        context,
        Table3Artifact,
        results,
        lead="Ablations of the base Transformer: every row changes one design choice. All results are on the "
        "development set.",
        said=said(main),
        beside=beside(main),
        sections=[
            page.Section("Differences from base", "The axes’ scales differ: compare signs and order.", deltas),
            page.Section("Learning curves", explanation, _drawings(cells)),
            *map(page.translations, [first.cell for first in shown[:1]]),
        ],
        models=list(chain.from_iterable(cells.values())),
        reports=reports,
        command=command,
    )


def _drawings(cells: Mapping[str, Sequence[Measured]]) -> list[Markup]:
    """Plots dev perplexity against updates: one plot per group of rows, with base; one curve per run."""
    groups: dict[str, list[str]] = {}
    for name in cells:
        groups.setdefault(group(name), []).append(name)
    if len(groups) > 1:
        groups.pop("base", None)
    drawings = []
    for letter, names in groups.items():
        models = [model for name in dict.fromkeys(["base", *names]) for model in cells.get(name, [])]
        title, file = GROUPS.get(letter, letter), f"dev_perplexity-{letter}"
        drawings += page.learning_figure(models, "dev_perplexity", title, file)
    return drawings


def both_deltas(table: Table, kind: Kind) -> dict[str, Point]:
    """Returns the printed and measured differences from base of each row with both, except base."""
    both = {row.name: (row.number(f"{kind}.paper_delta"), row.number(f"{kind}.delta")) for row in table.rows}
    return {name: (x, y) for name, (x, y) in both.items() if x is not None and y is not None}


def dots(kind: Kind, points: Mapping[str, Point]) -> Markup:
    """Plots each row's measured difference from base (y) against the printed one (x).

    The axes have separate scales: on other text and after fewer updates, a row's effect can be ten times the paper's,
    or a tenth of it. The plot compares signs and order.
    """
    colors = {name: SAME if printed * measured > 0 else OTHER for name, (printed, measured) in points.items()}
    meanings = {SAME: "same sign as in the paper", OTHER: "opposite sign, or none"}

    def draw(axes: Axes) -> None:
        for color, meaning in meanings.items():
            of_color = [point for name, point in points.items() if colors[name] == color]
            if of_color:
                axes.plot(*zip(*of_color, strict=True), "o", color=color, markersize=5, label=meaning)
        for name, point in points.items():
            axes.annotate(name, point, (3, 3), textcoords="offset points", fontsize=8)
        axes.axhline(0, color=INK, linewidth=1, alpha=0.55)
        axes.axvline(0, color=INK, linewidth=1, alpha=0.55)
        axes.margins(0.12)
        axes.set_ylabel("Δ here")

    described = "; ".join(f"{name}: {x:+g} in the paper, {y:+.3g} here" for name, (x, y) in points.items())
    rows = [(name, *point) for name, point in points.items()]
    drawing = svg(TITLES[kind], "Δ in the paper", draw)
    return figure(drawing, f"{TITLES[kind]}: {described}", f"differences-{kind}", ("row", "paper", "here"), rows)
