"""Plots the metrics of training runs against updates."""

from collections.abc import Sequence

from markupsafe import Markup

from workflows.tables.measurements import TrainedModel
from workflows.tables.plots import Curve, curves

TITLES = {
    "loss": "training loss",
    "dev_perplexity": "dev perplexity",
    "dev_paper_bleu": "paper BLEU, dev set",
    "dev_sacrebleu": "sacreBLEU, dev set",
    "dev_f1": "F1, dev set",
    "learning_rate": "learning rate",
}
"""The plotted metrics of `metrics.jsonl`, or of a model's series; MLflow shows them all."""


def learning_figure(models: Sequence[TrainedModel], name: str, title: str = "", file: str = "") -> list[Markup]:
    """Plots a metric of `metrics.jsonl` or of scored checkpoints over updates; an empty list if no run has it."""
    lines = []
    for model in models:
        logged = [(line["update"], line[name]) for line in model.metrics if name in line]
        if points := list(model.series().get(name, {}).items()) or logged:
            lines.append(Curve(model.label, points))
    look = {"smooth": name == "loss", "cut": name == "dev_perplexity"}
    return [curves(title or TITLES[name], "update", lines, file or name, **look)] if lines else []


def learning_figures(models: Sequence[TrainedModel]) -> list[Markup]:
    """Plots each metric that any run has."""
    return [drawing for name in TITLES for drawing in learning_figure(models, name)]
