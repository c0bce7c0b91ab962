"""Renders the report of Table 2, which is one HTML file."""

from collections.abc import Sequence

from markupsafe import Markup

from model.config import TransformerConfig
from pipeline.text.corpus_statistics import CorpusStatistics
from workflows.reports import page
from workflows.reports.architecture_drawing import architecture, built
from workflows.reports.page import AGAINST, Against, learning_curve
from workflows.reports.svg import COLORS, Curve, curves
from workflows.tables.measurements import Measured
from workflows.tables.table2 import FOOTNOTES, NOT_RUN, Table2


def _drawings(cells: Sequence[Measured], colors: dict[str, str]) -> list[Markup]:
    """Draws the learning curves, against updates and against minutes, and the learning rate."""

    def lines(against: Against, figure: str) -> list[Curve]:
        return [Curve(learning_curve(cell, against, figure), cell.label, colors[cell.label]) for cell in cells]

    return [
        curves(title, against, lines(against, figure), log=log)
        for title, figure, log in (("dev perplexity", "dev_perplexity", True), ("training loss", "loss", False))
        for against in AGAINST
    ] + [curves("learning rate", "updates", lines("updates", "learning_rate"), height_in=1.9)]


def _models(cells: Sequence[Measured]) -> list[tuple[str, Markup]]:
    """Draws each kind of model once, with the labels of its cells."""
    labels: dict[TransformerConfig, list[str]] = {}
    for cell in cells:
        labels.setdefault(cell.config, []).append(cell.label)
    return [(", ".join(of_model), architecture(built(config))) for config, of_model in labels.items()]


def render(table: Table2, cells: Sequence[Measured], corpora: Sequence[CorpusStatistics] = ()) -> str:
    """Renders the report as HTML that needs nothing outside itself; `corpora` are the texts behind the cells."""
    colors = {cell.label: COLORS[i % len(COLORS)] for i, cell in enumerate(cells)}
    return page.render(
        "report.html.j2",
        corpora,
        table=table,
        columns=table.columns,
        not_run=NOT_RUN,
        footnotes=FOOTNOTES,
        cells=cells,
        colors=colors,
        drawings=_drawings(cells, colors) if cells else [],
        settings={cell.label: page.settings(cell) for cell in cells},
        models=_models(cells),
        libraries=page.libraries(cells),
    )
