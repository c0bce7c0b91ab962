"""Updates that were queued on the device, and what is read back of them: metrics, and whether all were finite."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from model.config import OptimizerConfig
from model.loss import perplexity_of
from pipeline.errors import UserError


class Applied(NamedTuple):
    """A queued update, whose results may still be on the device."""

    number: int
    epoch: int
    source_tokens: int
    target_tokens: int
    results: Tensor
    """Summed loss and nll, and the gradient norm (`TrainingStep.apply`)."""

    def read_back(self) -> dict[str, Any]:
        """Synchronises with the device; returns the update's metrics."""
        loss, nll, norm = self.results.tolist()
        return {
            "update": self.number,
            "epoch": self.epoch,
            "loss": loss / self.target_tokens,
            "nll": nll / self.target_tokens,
            "perplexity": perplexity_of(nll / self.target_tokens),
            "gradient_norm": norm,
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
        }


def first_broken(updates: Sequence[Applied]) -> Applied | None:
    """Returns the first update with a non-finite loss or gradient; synchronises with the device."""
    finite = torch.stack([update.results for update in updates]).isfinite().all(dim=1).tolist()
    return next((update for update, is_finite in zip(updates, finite, strict=True) if not is_finite), None)


def check_finite(updates: Sequence[Applied], optimizer: OptimizerConfig) -> None:
    """Raises UserError for the first update with a non-finite loss or gradient."""
    if broken := first_broken(updates):
        loss, _, norm = broken.results.tolist()
        raise UserError(
            f"update {broken.number} (epoch {broken.epoch}): the loss is {loss / broken.target_tokens:.4g} and the "
            f"gradient norm {norm:.4g}, so the update was not applied; lower "
            f"optimizer.learning_rate_scale (now {optimizer.learning_rate_scale:g}), raise "
            f"optimizer.warmup_steps (now {optimizer.warmup_steps}) or set dtype = float32"
        )
