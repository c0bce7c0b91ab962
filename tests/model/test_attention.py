import math

import pytest
import torch

from model.attention import ScaledDotProductAttention, SelfAttention
from model.batch import PaddedLayout
from model.cpu import LARGE_NUMBERS, VECTOR_BYTES, softmax
from model.dropout import Dropout

CPU_VECTOR = VECTOR_BYTES // 8
"""The number of float64 values in a register."""


@pytest.mark.parametrize("n_keys", [1, 2, CPU_VECTOR - 1, CPU_VECTOR, CPU_VECTOR + 1, 3 * CPU_VECTOR])
def test_softmax_of_any_width_is_torch_s(n_keys: int) -> None:
    torch.manual_seed(n_keys)
    scores = torch.randn(3, 5, n_keys, dtype=torch.float64)
    scores[0, 0, 1:] = -math.inf
    both = [scores.clone().requires_grad_() for _ in range(2)]
    ours, theirs = softmax(both[0]), torch.softmax(both[1], dim=-1)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    for weights in (ours, theirs):
        (weights * torch.arange(n_keys)).sum().backward()
    torch.testing.assert_close(both[0].grad, both[1].grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("batch", "is_float32"), [(LARGE_NUMBERS // 256 - 1, True), (LARGE_NUMBERS // 256, False)])
def test_bfloat16_attends_in_the_type_of_the_batch_s_size(batch: int, is_float32: bool) -> None:
    torch.manual_seed(0)
    exact, length = SelfAttention(32, 2, 16, 16).double(), batch * 8
    x_ND = torch.randn(length, 32).bfloat16()
    hidden_B11L = torch.zeros(batch, 1, 1, 8).masked_fill(torch.rand(batch, 1, 1, 8) < 0.3, -math.inf)
    hidden_B11L[..., 0] = 0
    rounded = SelfAttention(32, 2, 16, 16).bfloat16()
    rounded.load_state_dict(exact.state_dict())
    exact.load_state_dict(rounded.state_dict())
    types = []
    rounded.function.on_weights = lambda weights_BHLM: (types.append(weights_BHLM.dtype), weights_BHLM)[1]
    results = []
    for layer in (exact, rounded):
        dtype = layer.w_qkv.weight.dtype
        own_ND = x_ND.to(dtype, copy=True).requires_grad_()
        y_ND = layer(own_ND, PaddedLayout(batch, 8, hidden_B11L.to(dtype)))
        assert y_ND.dtype == dtype
        y_ND.sum(dim=1).square().sum().backward()
        results.append((y_ND.double(), own_ND.grad.double()))
    assert types == [torch.float32 if is_float32 else torch.bfloat16]
    for theirs, ours in zip(*results, strict=True):
        assert (ours - theirs).norm() < 0.02 * theirs.norm()


@pytest.mark.gpu
def test_dropout_of_weights_is_equation_1_with_the_mask(device: str) -> None:
    torch.manual_seed(0)
    sizes = ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6))
    both = [[torch.randn(*size, dtype=torch.float64, device=device) for size in sizes]]
    both.append([x.clone() for x in both[0]])
    for x in both[0] + both[1]:
        x.requires_grad_()
    bias_B11M = torch.zeros(2, 1, 1, 7, dtype=torch.float64, device=device)
    bias_B11M[1, ..., 5:] = -math.inf
    function = ScaledDotProductAttention(Dropout(0.4, "here", 3, 1, 7)).to(device).train()
    keys_BL = torch.arange(1, 20, 2, dtype=torch.int32, device=device).view(2, 5)
    ours = function(*both[0], bias_B11M, keys_BL)
    mask_BHLM = function.dropout(torch.ones(2, 3, 5, 7, dtype=torch.float64, device=device), keys_BL[:, None])
    assert set(mask_BHLM.unique().tolist()) == {0.0, mask_BHLM.max().item()}
    q, k, v = both[1]
    theirs = (torch.softmax(q @ k.mT / 2 + bias_B11M, dim=-1) * mask_BHLM) @ v
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    for y in (ours, theirs):
        (y * torch.arange(6, device=device)).sum().backward()
    for mine, other in zip(*both, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-12, atol=1e-12)
