"""Plots the metrics of training runs against updates."""

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
"""The plotted metrics of `metrics.jsonl`, or of a model's series."""
SMOOTH = {"loss", "gradient_norm", "tokens_s"}
"""Metrics that vary from update to update: their running mean is plotted, too."""
CUT = {"dev_perplexity", "gradient_norm"}
"""Metrics that begin far above their final value."""


def learning_curve(model: TrainedModel, name: str) -> list[Point]:
    """Returns a metric over updates, from `metrics.jsonl` or from the scored checkpoints."""
    scored = model.series().get(name)
    if scored is not None:
        return [(update, value) for update, value in scored.items()]
    return [(line["update"], line[name]) for line in model.metrics if name in line]


def learning_figure(models: Sequence[TrainedModel], name: str, title: str = "", file: str = "") -> list[Markup]:
    """Plots a metric, one curve per run that has it; returns an empty list if none has."""
    lines = [Curve(model.label, points) for model in models if (points := learning_curve(model, name))]
    if not lines:
        return []
    title = title or TITLES[name]
    return [curves(title, "update", lines, file or name, smooth=name in SMOOTH, cut=name in CUT)]


def learning_figures(models: Sequence[TrainedModel]) -> list[Markup]:
    """Plots each metric that any run has."""
    return [drawing for name in TITLES for drawing in learning_figure(models, name)]
