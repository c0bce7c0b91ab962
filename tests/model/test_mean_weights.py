"""model.parameters: the mean of each weight is exact even where float32 would not be."""

import pytest
import torch

from model.parameters import average


def test_mean_of_each_weight() -> None:
    """The mean is the one computed by hand, with shapes and dtypes kept."""
    first = {"w": torch.tensor([1.0, 2.0]), "b": torch.tensor([[4.0]])}
    second = {"w": torch.tensor([3.0, -2.0]), "b": torch.tensor([[5.0]])}
    mean = average([first, second])
    assert mean["w"].tolist() == [2.0, 0.0]
    assert mean["b"].tolist() == [[4.5]]
    assert mean["w"].dtype == torch.float32


def test_sum_is_in_float64() -> None:
    """A float32 sum of 1e8, twenty times 1 and -1e8 would lose every 1; the mean does not."""
    weights = [1e8, *[1.0] * 20, -1e8]
    mean = average({"w": torch.tensor([weight])} for weight in weights)
    assert mean["w"].item() == pytest.approx(20 / 22)


def test_nothing_and_strangers_are_refused() -> None:
    """No checkpoints at all, or checkpoints of two models, are refused."""
    with pytest.raises(ValueError, match="no checkpoint"):
        average([])
    with pytest.raises(ValueError, match="different models"):
        average([{"w": torch.zeros(1)}, {"v": torch.zeros(1)}])


def test_nothing_has_no_mean() -> None:
    """No checkpoint is an error, not an empty one."""
    with pytest.raises(ValueError, match="no checkpoint to average"):
        average([])
