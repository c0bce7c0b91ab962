"""The paper's claims about attention and feed-forward layers that hold without training.

Shapes: N queries, M keys, K = d_k; L length.
"""

from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from model.attention import AdditiveAttention, DotProductAttention, ScaledDotProductAttention
from model.transformer import FeedForward

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


def flop_of(module: nn.Module, *inputs: Tensor) -> int:
    """Counts the FLOP of a forward pass, like `counted_flop` but for any inputs."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(*inputs)
    return counter.get_total_flops()


def test_additive_and_dot_product_attention_are_similar_in_complexity(monkeypatch: pytest.MonkeyPatch) -> None:
    """§3.2.1: additive takes 1 + d_k/n times the FLOP (at most 2× for d_k <= n) and n²·d_k tanh. Both are O(n²·d_k)."""
    n_tanh: list[int] = []
    monkeypatch.setattr(Tensor, "tanh_", lambda x: n_tanh.append(x.numel()) or x)
    for n in (64, 256, 1024):
        for d_k in (8, 64, 256):
            x_11LK = torch.zeros(1, 1, n, d_k, device="meta")
            functions = (function.to("meta") for function in (AdditiveAttention(1, d_k), DotProductAttention()))
            additive, product = (flop_of(function, x_11LK, x_11LK, x_11LK) for function in functions)
            assert product == 4 * n * n * d_k
            assert Fraction(additive, product) == 1 + Fraction(d_k, n)
            assert n_tanh.pop() == n * n * d_k


def test_the_feed_forward_layer_is_two_convolutions_of_kernel_size_1() -> None:
    """§3.3: both have the same outputs and the same gradients of input, weights and biases."""
    torch.manual_seed(0)
    layer = FeedForward(8, 32).double()
    for bias in (layer.w_1.bias, layer.w_2.bias):
        nn.init.normal_(bias)
    inner, outer = nn.Conv1d(8, 32, 1).double(), nn.Conv1d(32, 8, 1).double()
    with torch.no_grad():
        for convolution, linear in ((inner, layer.w_1), (outer, layer.w_2)):
            convolution.weight.copy_(linear.weight[:, :, None])
            convolution.bias.copy_(linear.bias)
    x_LD = torch.randn(19, 8, dtype=torch.float64, requires_grad=True)
    weights_LD = torch.randn(19, 8, dtype=torch.float64)
    ours, theirs = layer(x_LD), outer(inner(x_LD.T[None]).relu())[0].T
    parameters = [x_LD, *layer.parameters()], [x_LD, *inner.parameters(), *outer.parameters()]
    gradients = [
        torch.autograd.grad((y * weights_LD).sum(), of) for y, of in zip((ours, theirs), parameters, strict=True)
    ]
    for a, b in zip((ours, *gradients[0]), (theirs, *gradients[1]), strict=True):
        assert a.abs().max() > 0
        torch.testing.assert_close(a, b.view_as(a), rtol=1e-13, atol=1e-13)
