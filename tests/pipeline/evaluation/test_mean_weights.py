"""pipeline.evaluation.averaging: the mean of each weight is exact even where float32 would not be."""

import pytest
import torch

from pipeline.evaluation.averaging import mean_weights


def test_sum_is_in_float64() -> None:
    """A float32 sum of 1e8, twenty 1s and -1e8 would lose every 1. The mean keeps them."""
    weights = [1e8, *[1.0] * 20, -1e8]
    mean = mean_weights({"w": torch.tensor([weight])} for weight in weights)
    assert mean["w"].item() == pytest.approx(20 / 22)


def test_nothing_and_strangers_are_refused() -> None:
    """No checkpoints, or checkpoints of two models, raise ValueError."""
    with pytest.raises(ValueError, match="no checkpoint"):
        mean_weights([])
    with pytest.raises(ValueError, match="different models"):
        mean_weights([{"w": torch.zeros(1)}, {"v": torch.zeros(1)}])
