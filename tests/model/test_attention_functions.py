import math

import torch

from model.attention import AdditiveAttention, DotProductAttention, ScaledDotProductAttention
from model.batch import masking_bias

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
    expected_BHLV = (scores_BHLM + bias_M).softmax(-1) @ v_BHMV
    torch.testing.assert_close(function(q_BHLK, k_BHMK, v_BHMV, bias_M), expected_BHLV)


def test_parameters_follow_the_dtype_of_the_queries() -> None:
    """Small bfloat16 batches on CPUs attend in float32 (`model.cpu.to_fastest_dtype`), even if parameters are not."""
    *tensors, bias_M = (tensor.float() for tensor in random_input())
    function = AdditiveAttention(3, 8).bfloat16()
    x_BHLV = function(*tensors, bias_M.bfloat16())
    assert x_BHLV.dtype == torch.float32
    assert x_BHLV.equal(function.float()(*tensors, bias_M))
