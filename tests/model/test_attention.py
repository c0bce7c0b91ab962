"""model.attention: the padded softmax is torch's, and bfloat16 attention is near to the exact one at every size."""

import math

import pytest
import torch

from model.attention import CPU_VECTOR_BYTES, LARGE_ON_CPU, MultiHeadAttention, softmax
from model.rows import Layout, Memory

CPU_VECTOR = CPU_VECTOR_BYTES // 8
"""Number of float64 values in a register."""


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


@pytest.mark.parametrize("n_keys", [1, 15, 16, 31, 32, 33])
def test_softmax_of_any_width_is_near_to_torch_s_in_bfloat16(n_keys: int) -> None:
    """Weights differ by their rounding at most."""
    torch.manual_seed(n_keys)
    scores = torch.randn(300, n_keys, dtype=torch.bfloat16)
    torch.testing.assert_close(softmax(scores).double(), scores.double().softmax(dim=-1), rtol=2**-8, atol=0)


@pytest.mark.parametrize(("batch", "is_float32"), [(LARGE_ON_CPU // 256 - 1, True), (LARGE_ON_CPU // 256, False)])
def test_bfloat16_attends_in_the_type_of_the_batch_s_size(batch: int, is_float32: bool) -> None:
    """Small batches attend in float32; output and gradients of both sizes are near to those in float64."""
    torch.manual_seed(0)
    exact, layout, length = MultiHeadAttention(32, 2, 16, 16).double(), Layout(batch, 8), batch * 8
    x_ND = torch.randn(length, 32).bfloat16()
    hidden_B11L = torch.zeros(batch, 1, 1, 8).masked_fill(torch.rand(batch, 1, 1, 8) < 0.3, -math.inf)
    hidden_B11L[..., 0] = 0
    rounded = MultiHeadAttention(32, 2, 16, 16).bfloat16()
    rounded.load_state_dict(exact.state_dict())
    exact.load_state_dict(rounded.state_dict())
    types = []
    rounded.on_weights = lambda weights_BHLM: (types.append(weights_BHLM.dtype), weights_BHLM)[1]
    results = []
    for attention in (exact, rounded):
        dtype = attention.w_q.weight.dtype
        own_ND = x_ND.to(dtype, copy=True).requires_grad_()
        y_ND = attention(own_ND, layout, Memory(own_ND, layout, hidden_B11L.to(dtype)))[:length]
        assert y_ND.dtype == dtype
        y_ND.sum(dim=1).square().sum().backward()
        results.append((y_ND.double(), own_ND.grad.double()))
    assert types == [torch.float32 if is_float32 else torch.bfloat16]
    for theirs, ours in zip(*results, strict=True):
        assert (ours - theirs).norm() < 0.02 * theirs.norm()
