"""Writes `seeds.csv`: one row a trained model, for `aiayn claims` and for statistical tests of the reader's own."""

import csv
import io
from collections.abc import Sequence

import numpy as np

from workflows.tables.measured import Measured
from workflows.tables.provenance import dtypes


def seeds_csv(models: Sequence[Measured]) -> str:
    """Returns what each model was trained on, its seed, and its final metrics by MLflow name."""
    rows = [
        {
            "model": model.cell.model,
            "pair": model.cell.pair,
            "seed": model.run.settings.seed,
            "data": model.cell.data,
            "dtype": dtypes(model.run.segments),
            "updates": model.run.updates,
            "training_version": model.manifest.get("version", ""),
            "dataset": " ".join(each["sha256"][:12] for each in model.manifest.get("inputs", ())),
            "budget_tokens": model.run.settings.budget_tokens,
            "vocabulary": model.config.vocabulary_size,
            "averaged": len(model.averaged_updates),
            **model.final_metrics(),
            **equal,
        }
        for model, equal in zip(models, _at_equal_flop(models), strict=True)
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _at_equal_flop(models: Sequence[Measured]) -> list[dict[str, float]]:
    """Returns each model's dev NLL after as many FLOP as all models of its pair have spent, if architectures differ.

    Curves are interpolated between validations. A run whose first validation came later has no value.
    """
    curves = [model.nll_over_flop() for model in models]
    values: list[dict[str, float]] = []
    for model, curve in zip(models, curves, strict=True):
        beside = [each for other, each in zip(models, curves, strict=True) if other.cell.pair == model.cell.pair]
        architectures = {other.config.architecture for other in models if other.cell.pair == model.cell.pair}
        spent = min(each[-1][0] for each in beside if each) if all(beside) else 0.0
        value = {}
        if len(architectures) > 1 and curve and spent >= curve[0][0]:
            flop, nll = zip(*curve, strict=True)
            value["equal_flop_dev_nll"] = float(np.interp(spent, flop, nll))
        values.append(value)
    return values
