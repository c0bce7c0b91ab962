"""Draws what a training wrote down while it ran, each figure against its updates."""

from collections.abc import Sequence

from markupsafe import Markup

from workflows.reports.plots import Curve, Point, curves
from workflows.tables.measurements import TrainedModel

TITLES = {
    "loss": "training loss",
    "dev_perplexity": "dev perplexity",
    "dev_paper_bleu": "paper BLEU, dev set",
    "dev_sacrebleu": "sacreBLEU, dev set",
    "dev_f1": "F1, dev set",
    "learning_rate": "learning rate",
    "gradient_norm": "gradient norm",
    "tokens_s": "target tokens/s",
}
"""The figures of `metrics.jsonl`, or of a model's series, that are drawn."""
SMOOTH = {"loss", "gradient_norm", "tokens_s"}
"""Those that vary from update to update, so that their mean is drawn, too."""
CUT = {"dev_perplexity", "gradient_norm"}
"""Those that begin far above their end."""


def learning_curve(model: TrainedModel, name: str) -> list[Point]:
    """Returns a figure over the updates of the lines of `metrics.jsonl` that have it, or of the checkpoints scored."""
    scored = model.series().get(name)
    if scored is not None:
        return [(update, value) for update, value in scored.items()]
    return [(line["update"], line[name]) for line in model.metrics if name in line]


def learning_figure(models: Sequence[TrainedModel], name: str, title: str = "", file: str = "") -> list[Markup]:
    """Draws a curve for each training that has the figure; none if no training has."""
    lines = [Curve(model.label, points) for model in models if (points := learning_curve(model, name))]
    if not lines:
        return []
    title = title or TITLES[name]
    return [curves(title, "update", lines, file or name, smooth=name in SMOOTH, cut=name in CUT)]


def learning_figures(models: Sequence[TrainedModel]) -> list[Markup]:
    """Draws each figure that any of the trainings has."""
    return [drawing for name in TITLES for drawing in learning_figure(models, name)]
