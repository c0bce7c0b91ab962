import math

import pytest
import torch
from torch import Tensor

from model.attention import AdditiveAttention, DotProductAttention, ScaledDotProductAttention, SelfAttention
from model.batch import PaddedLayout, masking_bias
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
    exact, length = SelfAttention(32, 2, 16, 16, ScaledDotProductAttention()).double(), batch * 8
    x_ND = torch.randn(length, 32).bfloat16()
    hidden_B11L = torch.zeros(batch, 1, 1, 8).masked_fill(torch.rand(batch, 1, 1, 8) < 0.3, -math.inf)
    hidden_B11L[..., 0] = 0
    rounded = SelfAttention(32, 2, 16, 16, ScaledDotProductAttention()).bfloat16()
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
    function = ScaledDotProductAttention(dropout := Dropout(0.4, "here", 3, 1, 7)).to(device).train()
    keys_BL = torch.arange(1, 20, 2, dtype=torch.int32, device=device).view(2, 5)
    ours = function(*both[0], bias_B11M, keys_BL)
    mask_BHLM = dropout(torch.ones(2, 3, 5, 7, dtype=torch.float64, device=device), keys_BL[:, None])
    assert set(mask_BHLM.unique().tolist()) == {0.0, mask_BHLM.max().item()}
    q, k, v = both[1]
    theirs = (torch.softmax(q @ k.mT / 2 + bias_B11M, dim=-1) * mask_BHLM) @ v
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    for y in (ours, theirs):
        (y * torch.arange(6, device=device)).sum().backward()
    for mine, other in zip(*both, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-12, atol=1e-12)


MASKED = 2
"""The key masked by the input's bias."""


def random_input() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    q_BHLK, k_BHMK, v_BHMV = (torch.randn(2, 3, *sizes, dtype=torch.float64) for sizes in ((5, 8), (4, 8), (4, 6)))
    return q_BHLK, k_BHMK, v_BHMV, masking_bias(torch.arange(4) == MASKED, torch.float64)


def test_dot_products_are_scaled_ones_of_shorter_queries() -> None:
    q_BHLK, *others = random_input()
    unscaled_BHLV = DotProductAttention()(q_BHLK / math.sqrt(8), *others)
    torch.testing.assert_close(unscaled_BHLV, ScaledDotProductAttention()(q_BHLK, *others))


def test_additive_attention_is_its_formula() -> None:
    """v · tanh(W q + U k) for each pair of positions, with each head's own parameters."""
    q_BHLK, k_BHMK, v_BHMV, bias_M = random_input()
    function = AdditiveAttention(3, 8).double()
    scores_BHLM = torch.empty(2, 3, 5, 4, dtype=torch.float64)
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, scores_BHLM.shape)).tolist():
        hidden_X = torch.tanh(function.w_HKX[h].T @ q_BHLK[b, h, i] + function.u_HKX[h].T @ k_BHMK[b, h, j])
        scores_BHLM[b, h, i, j] = function.v_HX1[h, :, 0] @ hidden_X
    torch.testing.assert_close(function(q_BHLK, k_BHMK, v_BHMV, bias_M), (scores_BHLM + bias_M).softmax(-1) @ v_BHMV)


def test_parameters_follow_the_dtype_of_the_queries() -> None:
    """Small bfloat16 batches on CPUs attend in float32 (`model.cpu.to_fastest_dtype`), even if parameters are not."""
    *tensors, bias_M = (tensor.float() for tensor in random_input())
    function = AdditiveAttention(3, 8).bfloat16()
    x_BHLV = function(*tensors, bias_M.bfloat16())
    assert x_BHLV.dtype == torch.float32
    assert x_BHLV.equal(function.float()(*tensors, bias_M))


N_QUERIES, N_KEYS = 2048, 16
D_K = (4, 16, 64, 512)
QUANTILES = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)


def random_queries_and_keys(d_k: int) -> tuple[Tensor, Tensor]:
    """Returns q_N11K and k_N1MK, whose components are independent, of mean 0 and variance 1 (footnote 4)."""
    torch.manual_seed(d_k)
    sizes = (N_QUERIES, 1, 1, d_k), (N_QUERIES, 1, N_KEYS, d_k)
    q_N11K, k_N1MK = (torch.randn(size, dtype=torch.float64) for size in sizes)
    return q_N11K, k_N1MK


def gradient_norms(function: ScaledDotProductAttention, d_k: int) -> Tensor:
    """Returns the Frobenius norm of the Jacobian of the softmax in an attention function, diag(p) - p pᵀ: norm_N."""
    v_11MM = torch.eye(N_KEYS, dtype=torch.float64)[None, None]  # so the output is p
    p_NM = function(*random_queries_and_keys(d_k), v_11MM)[:, 0, 0]
    return torch.linalg.matrix_norm(p_NM.diag_embed() - p_NM[:, :, None] * p_NM[:, None])


def test_the_softmax_s_gradient_vanishes_as_d_k_grows_unless_scaled() -> None:
    """§3.2.1: unscaled, it is "extremely small" for half of the queries and gone for a tenth. Scaled, it stays."""
    q_N11K, k_N1MK = (drawn[:64] for drawn in random_queries_and_keys(D_K[0]))
    products_NM = (k_N1MK @ q_N11K.mT).flatten(1)
    jacobian_MNM = torch.autograd.functional.jacobian(lambda x_NM: x_NM.softmax(1).sum(0), products_NM)
    expected_N = torch.linalg.matrix_norm(jacobian_MNM.transpose(0, 1))
    torch.testing.assert_close(gradient_norms(DotProductAttention(), D_K[0])[:64], expected_N)
    unscaled, scaled = (
        torch.stack([torch.quantile(gradient_norms(function, d_k), QUANTILES) for d_k in D_K])
        for function in (DotProductAttention(), ScaledDotProductAttention())
    )
    tenth, median, _ = (unscaled / unscaled[0]).unbind(1)
    assert tenth.diff().max() < 0
    assert unscaled[0, 1] == pytest.approx(1 / 3, rel=0.05)
    assert 0.001 < median[-1] < 0.003
    assert tenth[-1] < 1e-8
    torch.testing.assert_close(scaled, scaled[0].expand_as(scaled), rtol=0.1, atol=0)
