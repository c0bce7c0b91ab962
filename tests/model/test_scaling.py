"""§3.2.1: why attention divides by √d_k, on random queries and keys.

Shapes: N queries, M keys, K = d_k.
"""

import pytest
import torch
from torch import Tensor

from model.attention import DotProductAttention, ScaledDotProductAttention

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
