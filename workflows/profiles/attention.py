"""Settings for comparing the attention functions of §3.2.1: a small Transformer per d_k, function and seed."""

from dataclasses import replace

from pipeline.settings import TrainingSettings

WIDTHS = 4, 32, 128
"""Values of d_k. The functions are timed at the same values."""
RATES = 0.125, 0.25, 0.5, 1.0
"""Learning rates tried for each function, as multiples of the paper's."""
_UPDATES = 500
"""Enough for scaled dot-product attention to learn the generated text, in a few seconds per run."""


def attention_settings(training: TrainingSettings, d_k: int, rate: float, seed: int) -> TrainingSettings:
    """Returns Table 3's `training` with one layer, one head of width `d_k` and no dropout: seconds on a CPU.

    All functions share these settings. d_v is constant, so d_k affects only the comparison of positions.
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
