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
}
"""The plotted metrics of `metrics.jsonl`, or of a model's series; MLflow shows them all."""


def learning_curve(model: TrainedModel, name: str) -> list[Point]:
    """Returns a metric over updates, from `metrics.jsonl` or from the scored checkpoints."""
    if scored := model.series().get(name):
        return list(scored.items())
    return [(line["update"], line[name]) for line in model.metrics if name in line]


def learning_figure(models: Sequence[TrainedModel], name: str, title: str = "", file: str = "") -> list[Markup]:
    """Plots a metric, one curve per run that has it; returns an empty list if none has."""
    lines = [Curve(model.label, points) for model in models if (points := learning_curve(model, name))]
    look = {"smooth": name == "loss", "cut": name == "dev_perplexity"}
    return [curves(title or TITLES[name], "update", lines, file or name, **look)] if lines else []


def learning_figures(models: Sequence[TrainedModel]) -> list[Markup]:
    """Plots each metric that any run has."""
    return [drawing for name in TITLES for drawing in learning_figure(models, name)]
