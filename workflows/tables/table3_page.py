"""Writes the page of Table 3: base in a sentence, differences from base, learning curves and translations."""

import math
from collections.abc import Mapping, Sequence
from itertools import chain

from markupsafe import Markup
from matplotlib.axes import Axes

from pipeline.context import Context
from workflows.claims.welch import ALPHA, welch
from workflows.command_line import UNKNOWN, CommandLine
from workflows.paper import VARIATIONS, group
from workflows.tables import page
from workflows.tables.corpus import CorpusReport
from workflows.tables.measured import Measured
from workflows.tables.plots import COLORS, INK, figure, svg
from workflows.tables.table import Table
from workflows.tables.table3 import RowTrainings, Table3Artifact, compute

GROUPS = {"A": "heads", "B": "key size", "C": "size of the model", "D": "dropout, label smoothing", "E": "positions"}
"""The paper's variation under each letter."""
FOREST = "Means, with 95% intervals over seeds (Welch). With one seed there is none: the difference may be chance."


def said(main: Table) -> str:
    """States base's scores in a sentence, or which rows were trained."""
    trained = {row.name: row for row in main.rows if row.values.get("seeds")}
    if base := trained.get("base"):
        perplexity, bleu = base.number("perplexity"), base.number("paper_bleu", "sacrebleu")
        return f"Base reaches perplexity {perplexity:.2f} and BLEU {bleu:.1f}."
    return f"Rows trained: {', '.join(trained)}." if trained else page.NOTHING_RUN


def beside(main: Table) -> str:
    """States how many rows differ from base in the paper's direction."""
    both = [(row.number("perplexity.paper_delta"), row.number("perplexity.delta")) for row in main.rows]
    alike = [printed * here > 0 for printed, here in both if printed is not None and here is not None]
    return f"By perplexity, {sum(alike)} of {len(alike)} rows differ from base in the paper's direction." * bool(alike)


def tabulate(
    context: Context, rows: list[RowTrainings], reports: Sequence[CorpusReport] = (), command: CommandLine = UNKNOWN
) -> Table3Artifact:
    """Writes Table 3 with all its rows, with results or without; `reports` holds their corpus report."""
    results, cells = compute(rows)
    main = results.tables[0]
    shown = next(iter([cells["base"]] if "base" in cells else cells.values()), [])
    explanation = "Dev perplexity: one plot per group of rows, with base, one curve per run. Beginnings are cut off."
    return page.write(
        context,
        Table3Artifact,
        results,
        lead="Ablations of the base Transformer: every row changes one design choice. All results are on the "
        "development set.",
        said=said(main),
        beside=beside(main),
        sections=[
            page.Section("Differences from base", FOREST, forest(cells)),
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
        title, file = ": ".join(filter(None, (letter, GROUPS.get(letter)))), f"dev_perplexity-{letter}"
        drawings += page.learning_figure(models, "dev_perplexity", title, file)
    return drawings


def forest(cells: Mapping[str, Sequence[Measured]]) -> list[Markup]:
    """Plots each row's mean final dev NLL less base's, with its 95% interval (Welch), beside the paper's ln of PPL."""
    values = {name: [model.dev.dev_nll for model in of_row] for name, of_row in cells.items()}
    if not (base := values.pop("base", [])) or not values:
        return []
    effects = [welch([(1, of_row), (-1, base)]) for of_row in values.values()]
    here, margins = [each.value for each in effects], [each.margin(ALPHA / 2) if each.df else None for each in effects]
    texts = [f"{x:+.3f}" + ("" if of_x is None else f" ± {of_x:.3f}") for x, of_x in zip(here, margins, strict=True)]
    logs = {name: math.log(float(each.perplexity)) for name, each in VARIATIONS.items()}
    printed, at = [logs.get(name, math.nan) - logs["base"] for name in values], range(len(texts))

    def draw(axes: Axes) -> None:
        axes.errorbar(here, at, xerr=[each or 0 for each in margins], fmt="o", color=COLORS[0], ms=4, label="here")
        axes.plot(
            printed, at, "D", color=COLORS[1], fillstyle="none", markersize=5, label="in the paper, ln perplexity"
        )
        axes.axvline(0, color=INK, linewidth=1, alpha=0.55)
        axes.set_yticks(at, values)
        axes.set_ylim(len(texts) - 0.5, -0.5)
        axes.secondary_yaxis("right").set_yticks(at, texts)

    title, described = "dev NLL less base’s, nats per token", map(" ".join, zip(values, texts, strict=True))
    rows = zip(values, printed, here, margins, strict=True)
    drawing = svg(title, "lower is better", draw, height_in=1.2 + 0.2 * len(texts))
    return [
        figure(drawing, f"{title}: {'; '.join(described)}", "differences", ("row", "paper", "here", "margin"), rows)
    ]
