"""The trainings that compare the attention functions of §3.2.1: a small Transformer for each d_k, function and seed."""

from dataclasses import replace

from pipeline.complexity.settings import ArgumentSettings
from pipeline.settings import TrainingSettings

WIDTHS = ArgumentSettings().attention_d_k
"""Values of d_k, at which the functions are timed, too."""
_UPDATES = 500
"""With which scaled dot-product attention learns the generated text well, in a few seconds a training."""


def attention_settings(training: TrainingSettings, d_k: int, seed: int) -> TrainingSettings:
    """Returns Table 3's `training` with one layer, one head of `d_k` columns and no dropout; it takes seconds on a CPU.

    All functions train with the same. d_v does not grow with d_k, so that only the comparison of positions does.
    """
    model = replace(training.model, n_layers=1, n_heads=1, d_k=d_k, d_v=training.model.d_model)
    return training.model_copy(
        update={
            "model": replace(model, dropout=0.0, attention_dropout=0.0, attention_window=0),
            "optimizer": replace(training.optimizer, warmup_steps=_UPDATES // 5, learning_rate_scale=0.5),
            "updates": _UPDATES,
            "seed": seed,
            "dtype": "float32",
            "checkpoint_updates": _UPDATES,
            "validation_updates": _UPDATES,
            "keep_checkpoints": 1,
            "workers": 1,
            "threads": 1,
            "device": "cpu",
        }
    )
