"""The trainings that compare the attention functions of §3.2.1: a small Transformer for each d_k, function and seed."""

from dataclasses import replace

from pipeline.settings import TrainingSettings

WIDTHS = 4, 32, 128
"""Values of d_k, at which the functions are timed, too."""
RATES = 0.125, 0.25, 0.5, 1.0
"""Learning rates that each function is tried with, as multiples of the paper's."""
_UPDATES = 500
"""With which scaled dot-product attention learns the generated text well, in a few seconds a training."""


def attention_settings(training: TrainingSettings, d_k: int, rate: float, seed: int) -> TrainingSettings:
    """Returns Table 3's `training` with one layer, one head of `d_k` columns and no dropout; it takes seconds on a CPU.

    All functions train with the same. d_v does not grow with d_k, so that only the comparison of positions does.
    """
    model = replace(training.model, n_layers=1, n_heads=1, d_k=d_k, d_v=training.model.d_model)
    return training.model_copy(
        update={
            "model": replace(model, dropout=0.0, attention_dropout=0.0, attention_window=0),
            "optimizer": replace(training.optimizer, warmup_steps=_UPDATES // 5, learning_rate_scale=rate),
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
