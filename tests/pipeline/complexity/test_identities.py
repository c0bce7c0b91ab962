"""The paper's claims about layers that hold without training: arithmetic, FLOP, paths, positions and gradients.

Each is measured on the modules that are trained or compared. Tested elsewhere: position i depends only on outputs
before i (§3.1, `test_what_must_not_matter_changes_no_logit`), and, in `test_counting`, O(1) or O(n) sequential
operations and paths of n/r and n/k layers (§4).

Shapes: N queries, M keys, K = d_k; B = 1 sequence, L length, D = d_model, F = d_ff; H = 1 head; P positions, W pairs.
"""

import math
import statistics
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from model.attention import AdditiveAttention, DotProductAttention, ScaledDotProductAttention
from model.config import BASE
from model.transformer import FeedForward, sinusoids
from pipeline.complexity.count import counted_flop, dependencies, least_steps, longest_path, stack
from pipeline.complexity.layer_types.modules import Convolutional, make, make_projected
from pipeline.complexity.layer_types.sizes import LayerSizes
from pipeline.complexity.settings import LayerSettings
from pipeline.settings import VocabularySettings
from pipeline.store.artifact import Context
from pipeline.text.lines import read_lines, read_pairs
from pipeline.text.vocabulary import learn, load
from tests.support.layer_flop import projected_flop
from tests.support.parallel_text import corpus_of

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


def test_products_of_random_queries_and_keys_have_mean_0_and_variance_d_k() -> None:
    """Footnote 4: q · k is a sum of d_k products with mean 0 and variance 1."""
    for d_k in D_K:
        q_N11K, k_N1MK = random_queries_and_keys(d_k)
        products_NM = (k_N1MK @ q_N11K.mT).flatten(1)
        assert abs(products_NM.mean()) < 0.02 * math.sqrt(d_k)
        assert products_NM.var() == pytest.approx(d_k, rel=0.05)


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


@pytest.mark.parametrize(("n", "d"), [(48, 16), (512, 512)])
def test_heads_cost_no_flop(n: int, d: int) -> None:
    """§3.2.2: h heads of width d/h take exactly the FLOP of one head of width d, projections included."""
    flop = {counted_flop(make_projected("self-attention", LayerSizes(d, n_heads=h)), n, d) for h in (1, 2, 4, 8, 16)}
    assert flop == {projected_flop("self-attention", LayerSizes(d), n)}


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


def rotation(d_model: int, k: int) -> Tensor:
    """Returns M_k, the rotation of each pair by the angle of the same pair in PE(k): m_DD, float64."""
    pairs = sinusoids(1, d_model, first=k).double().view(-1, 2).tolist()
    return torch.block_diag(*(torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64) for sin, cos in pairs))


def test_the_encoding_of_a_later_position_is_linear_in_that_of_an_earlier() -> None:
    """§3.5: PE(pos + k) = M_k PE(pos) with one M_k for all positions, up to float32 rounding. M_kᵀ inverts it."""
    for d, k in ((16, 5), (512, 1), (512, 1000)):
        m_DD = rotation(d, k)
        before_PD, after_PD = sinusoids(4000, d).double(), sinusoids(4000, d, first=k).double()
        torch.testing.assert_close(before_PD @ m_DD.T, after_PD, rtol=0, atol=1e-6)
        torch.testing.assert_close(after_PD @ m_DD, before_PD, rtol=0, atol=1e-6)
        assert (before_PD @ m_DD - after_PD).abs().max() > 1


def test_wavelengths_are_a_geometric_progression() -> None:
    """§3.5, at d = 512: from 2π to 9,647·2π, because 10000^(510/512) is 9,647. The paper prints 10000·2π.

    A pair's phase at 2^j comes from its sine and cosine, the number of whole turns from the phase at 2^(j - 1).
    """
    phase_W = torch.zeros(256, dtype=torch.float64)
    for j in range(15):
        sin_W, cos_W = sinusoids(1, 512, first=2**j).double()[0].view(-1, 2).unbind(1)
        phase_W = 2 * phase_W
        phase_W = phase_W + torch.remainder(torch.atan2(sin_W, cos_W) - phase_W + math.pi, 2 * math.pi) - math.pi
    turns_W = 2**14 / phase_W  # wavelengths as multiples of 2π
    assert turns_W[0] == pytest.approx(1, rel=1e-6)
    assert turns_W[-1] == pytest.approx(10000 ** (510 / 512), rel=1e-6)
    assert round(float(turns_W[-1])) == 9647
    ratios_W = turns_W[1:] / turns_W[:-1]
    torch.testing.assert_close(ratios_W, torch.full_like(ratios_W, 10000 ** (2 / 512)), rtol=1e-6, atol=0)


def test_a_convolution_costs_k_over_2_elman_and_k_over_8_lstm_layers() -> None:
    """§4, "by a factor of k": linear in k. Recurrence has two products, W x and U h, an LSTM two per gate."""
    n, d = 48, 16
    elman = counted_flop(make("recurrent", LayerSizes(d)), n, d)
    lstm = flop_of(nn.LSTM(d, d, batch_first=True).double(), torch.zeros(1, n, d).double())  # float32, fused, is 0
    for k in (1, 3, 7, 31):
        flop = counted_flop(make("convolutional", LayerSizes(d, kernel=k)), n, d)
        assert Fraction(flop, elman) == Fraction(k, 2)
        assert Fraction(flop, lstm) == Fraction(k, 8)


def test_restricted_attention_is_linear_in_r() -> None:
    """§4: a block of r queries is computed with 2r - 1 keys, at every multiple n of r."""
    n, d = 96, 16
    for r in (3, 6, 12, 24):
        layer = make("restricted self-attention", LayerSizes(d, window=r))
        assert counted_flop(layer, n, d) == 4 * n * (2 * r - 1) * d


def test_a_separable_convolution_costs_less_than_a_full_one_and_with_k_equal_n_no_more_than_attention() -> None:
    """§4: it takes 1/k + 1/d of a full convolution's FLOP, so fewer for k, d > 2.

    With k = n, self-attention and a point-wise d × d layer take (2n + d) / (n + d) times as many: 1 to 2.
    """
    n = 48
    for d in (16, 64):
        for k in (3, 7, 31):
            separable, full = (
                counted_flop(make(name, LayerSizes(d, kernel=k)), n, d)
                for name in ("separable convolution", "convolutional")
            )
            assert Fraction(separable, full) == Fraction(1, k) + Fraction(1, d) < 1
    for n in (9, 33, 129, 513):
        for d in (8, 128, 512):
            separable = counted_flop(make("separable convolution", LayerSizes(d, kernel=n)), n, d)
            attention = counted_flop(nn.Sequential(make("self-attention", LayerSizes(d)), nn.Linear(d, d)), n, d)
            assert 1 < Fraction(attention, separable) == Fraction(2 * n + d, n + d) < 2


class CausalConvolution(Convolutional):
    """A convolution over the k positions up to and including the output's own."""

    def forward(self, x_BLD: Tensor) -> Tensor:
        """x_BLD -> x_BLD."""
        behind = self.convolution.dilation[0] * (self.convolution.kernel_size[0] // 2)
        return super().forward(F.pad(x_BLD, (0, 0, behind, 0)))[:, : x_BLD.shape[1]]


def one_sided_path(length: int, width: int, kernel: int) -> int:
    """Counts layers until each output depends on all inputs up to its own. They see k, k², k³ ... without gaps."""
    network = stack(lambda depth: CausalConvolution(LayerSizes(width, kernel, dilation=kernel**depth)))
    return least_steps(network, torch.ones(length, length, dtype=torch.bool).tril(), width)


@pytest.mark.parametrize("kernel", [3, 7])
def test_one_sided_paths_are_logarithms_to_the_base_k(kernel: int) -> None:
    """§4: dilated kernels need ceil(log_k n) layers, also right before and after a power of k."""
    lengths = (kernel, kernel + 1, kernel**2 - 1, kernel**2, kernel**2 + 1)
    assert [one_sided_path(n, 4, kernel) for n in lengths] == [1, 2, 2, 2, 3]


def test_centred_kernels_need_more_layers_than_the_logarithm() -> None:
    """§4: 128 positions take 3 = ceil(log_7 128) layers of one-sided kernels, and 4 of centred ones.

    Centred kernels see k // 2 positions to either side, so without gaps the dilation grows k // 2 + 1 times per layer.
    """
    torch.manual_seed(0)
    assert one_sided_path(128, 4, 7) == math.ceil(math.log(128, 7)) == 3
    assert longest_path("convolutional", LayerSettings(kernel=7), 128, 4, "dilated") == 4


@pytest.mark.parametrize("name", ["convolutional", "separable convolution"])
def test_a_single_convolution_of_k_below_n_does_not_connect_all_pairs(name: Any) -> None:
    """§4: an output sees k // 2 positions to either side, and all of them only at k = 2n - 1."""
    torch.manual_seed(0)
    n, d = 9, 4
    distance_LL = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    for k in (3, 7, n, 2 * n - 1):
        seen_LL = dependencies(stack(lambda _, k=k: make(name, LayerSizes(d, kernel=k))), 1, n, d)
        assert seen_LL.equal(distance_LL <= k // 2)
        assert seen_LL.all() == (k == 2 * n - 1)


def test_sentences_are_shorter_than_the_model_is_wide(data: Path, tmp_path: Path) -> None:
    """§4, "most often the case": n < 512 in all of newstest2013 and of a sample of Europarl, with 37,000 BPE pieces.

    The mean of n, END_ID included, is 27 in English news, 28 in German news and 31 in Europarl.
    """
    names = ("multi30k/train", "europarl_sample/train", "tatoeba_en_de/train")
    pairs = (pair for name in names for pair in read_pairs(*(data / f"{name}.{side}.gz" for side in ("en", "de"))))
    (tmp_path / "vocabulary").mkdir()
    corpus = corpus_of(tmp_path / "corpus", pairs)
    pieces = load(learn(Context(tmp_path / "vocabulary"), corpus, VocabularySettings(size=37_000)).path)
    assert len(pieces) == 37_000
    for name, mean in (("newstest2013/newstest2013", 27), ("europarl_sample/train", 31)):
        for side in ("en", "de"):
            lengths = [len(ids) + 1 for ids in pieces.encode([*read_lines(data / f"{name}.{side}.gz")])]
            assert max(lengths) < BASE.d_model == 512
            assert statistics.fmean(lengths) == pytest.approx(mean, abs=1.5)
