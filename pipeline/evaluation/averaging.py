"""Averages the last checkpoints of a run into the model used for translation (paper §6.1).

checkpoint = average(Context(folder), run, AveragingSettings(last=5))
"""

import logging
import shutil
from collections.abc import Iterable

import safetensors.torch
from torch import Tensor

from pipeline.artifacts import Checkpoint, TrainingRun
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.records import AveragingRecord
from pipeline.settings import AveragingSettings
from pipeline.training.checkpoints import write_weights

log = logging.getLogger(__name__)


def average(context: Context, run: TrainingRun, settings: AveragingSettings) -> Checkpoint:
    """Writes the mean of the last `settings.last` checkpoints, and `averaging.json` with their updates.

    Raises UserError if the run kept fewer checkpoints.
    """
    kept = sorted(set(run.load().checkpoints))
    if settings.last > len(kept):
        raise UserError(
            f"cannot average last = {settings.last} checkpoints: {run.folder} kept {len(kept)}; "
            "lower last, or train with more keep_checkpoints and a smaller checkpoint_updates"
        )
    updates = kept[-settings.last :]
    log.info("averaging the checkpoints of updates %s", ", ".join(map(str, updates)))
    averaged = [run.checkpoint(update) for update in updates]
    weights = mean_weights(safetensors.torch.load_file(one.folder / "model.safetensors") for one in averaged)
    checkpoint = Checkpoint(context.folder)
    write_weights(checkpoint.folder, weights, averaged[-1].read_json("model.json"))
    shutil.copyfile(averaged[-1].vocabulary, checkpoint.vocabulary)
    return checkpoint.write(AveragingRecord(updates=tuple(updates)))


def mean_weights(checkpoints: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Averages one run's `state_dict()`s in float64, holding one at a time; the result has the last one's dtypes."""
    sums: dict[str, Tensor] = {}
    n_checkpoints = 0
    for weights in checkpoints:
        n_checkpoints += 1
        for name, weight in weights.items():
            sums[name] = sums[name].add_(weight) if name in sums else weight.double()
    return {name: (total / n_checkpoints).to(weights[name].dtype) for name, total in sums.items()}
