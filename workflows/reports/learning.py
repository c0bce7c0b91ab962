"""Draws what a training wrote down while it ran, each figure against its updates or its minutes, with the data as CSV.

learning_figures(cells, styles(cell.label for cell in cells))
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from markupsafe import Markup

from workflows.reports.svg import Curve, Point, curves, figure
from workflows.tables.measurements import Trained

Against = Literal["updates", "minutes"]
AGAINST: dict[Against, Callable[[Mapping[str, Any]], float]] = {
    "updates": lambda line: float(line["update"]),
    "minutes": lambda line: float(line["train_s"]) / 60,
}
"""The horizontal axes of learning curves, each read from a line of `metrics.jsonl`."""
UPDATES_ONLY: tuple[Against, ...] = ("updates",)


@dataclass(frozen=True)
class Measure:
    """A figure of `metrics.jsonl`, or of a model's series, and how it is drawn."""

    title: str
    name: str
    against: tuple[Against, ...] = UPDATES_ONLY
    log: bool = False
    smooth: bool = False
    """Whether it varies from update to update, so that its mean is drawn, too."""


MEASURES = (
    Measure("training loss", "loss", ("updates", "minutes"), smooth=True),
    Measure("dev perplexity", "dev_perplexity", ("updates", "minutes"), log=True),
    Measure("paper BLEU, dev set", "dev_paper_bleu"),
    Measure("sacreBLEU, dev set", "dev_sacrebleu"),
    Measure("F1, dev set", "dev_f1", ("updates", "minutes")),
    Measure("learning rate", "learning_rate"),
    Measure("gradient norm", "gradient_norm", log=True, smooth=True),
    Measure("target tokens/s", "tokens_s", smooth=True),
)


def learning_curve(cell: Trained, against: Against, name: str) -> list[Point]:
    """Returns the curve of a figure over the lines of `metrics.jsonl` that have it, or over the checkpoints scored."""
    scored = cell.series().get(name)
    if scored is None:
        return [(AGAINST[against](line), line[name]) for line in cell.metrics if name in line]
    at = {line["update"]: AGAINST[against](line) for line in cell.metrics}
    return [(at[update], value) for update, value in scored.items() if update in at]


def learning_figures(cells: Sequence[Trained], styles: Mapping[str, tuple[str, Any]]) -> list[Markup]:
    """Draws each figure that any of the trainings has: a curve for each training, in the colour and dashes given."""
    drawn = []
    for measure in MEASURES:
        for against in measure.against:
            lines = [
                Curve(points, cell.label, *styles[cell.label])
                for cell in cells
                if (points := learning_curve(cell, against, measure.name))
            ]
            if lines:
                picture = curves(measure.title, against, lines, log=measure.log, smooth=measure.smooth)
                drawn.append(with_data(picture, cells, measure, against))
    return drawn


def with_data(picture: Markup, cells: Sequence[Trained], measure: Measure, against: Against) -> Markup:
    """Returns a drawing of learning curves as a figure with its data."""
    name = f"{measure.name}-by-{against}"
    return figure(picture, name, ("model", "seed", against, measure.name), _rows(cells, measure, against))


def _rows(cells: Sequence[Trained], measure: Measure, against: Against) -> Iterator[tuple[object, ...]]:
    for cell in cells:
        for x, y in learning_curve(cell, against, measure.name):
            yield cell.label, cell.settings.seed, f"{x:.6g}", f"{y:.6g}"
