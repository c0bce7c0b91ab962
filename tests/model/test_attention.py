"""model.attention: the padded softmax is torch's."""

import math

import pytest
import torch

from model.attention import CPU_VECTOR, softmax


@pytest.mark.parametrize("n_keys", [1, 2, CPU_VECTOR - 1, CPU_VECTOR, CPU_VECTOR + 1, 3 * CPU_VECTOR])
def test_softmax_of_any_width_is_torch_s(n_keys: int) -> None:
    """Values and gradients are equal, with keys that are hidden too."""
    torch.manual_seed(n_keys)
    scores = torch.randn(3, 5, n_keys, dtype=torch.float64)
    scores[0, 0, 1:] = -math.inf
    both = [scores.clone().requires_grad_() for _ in range(2)]
    ours, theirs = softmax(both[0]), torch.softmax(both[1], dim=-1)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    for weights in (ours, theirs):
        (weights * torch.arange(n_keys)).sum().backward()
    torch.testing.assert_close(both[0].grad, both[1].grad, rtol=1e-12, atol=1e-12)
