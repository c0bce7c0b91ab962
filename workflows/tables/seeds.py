"""Writes `seeds.csv`: one row a trained model, for `aiayn claims` and for statistical tests of the reader's own."""

import csv
import io
from collections.abc import Sequence

from workflows.profiles.profile import COMPETITORS
from workflows.tables.measured import Measured
from workflows.tables.provenance import dtypes

TOLERANCE = 0.02
"""Runs have spent as many FLOP if none has counted more than the least by this fraction."""


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
            **_at_equal_flop(model, models),
        }
        for model in models
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _at_equal_flop(model: Measured, models: Sequence[Measured]) -> dict[str, float]:
    """Returns the final dev NLL of base and its competitors, if all of a language pair have spent as many FLOP."""
    names = ("base", *COMPETITORS)
    compared = [other for other in models if other.cell.pair == model.cell.pair and other.cell.model in names]
    flop = [other.costs.counted_flop for other in compared]
    has_several = model.cell.model in names and len({other.cell.model for other in compared}) > 1
    return {"equal_flop_dev_nll": model.dev.dev_nll} if has_several and max(flop) <= (1 + TOLERANCE) * min(flop) else {}
