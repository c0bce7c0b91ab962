"""The stage that counts what the paper argues of layers in words (§3.2, §3.5, §4), beside what Table 1 says of them.

Most are FLOP, by torch's own counter. What is random is drawn with a fixed seed, so the figures are the same everywhere
but for rounding.

Shapes: N queries, M keys, K = d_k, P positions, D = d_model; L length, B sequences.
"""

import math

import torch
from torch import Tensor, nn

from model.transformer import sinusoids
from pipeline.complexity.count import SEED, counted_flop, least_steps, stack
from pipeline.complexity.figures import ArgumentCounts, CountedArguments, FullKernelCounts, ProductCounts
from pipeline.complexity.layer_types.modules import CausalConvolution, make, make_projected
from pipeline.complexity.layer_types.sizes import LayerSizes
from pipeline.complexity.settings import ArgumentSettings
from pipeline.store.artifact import Context

AT_ONCE = 1024
"""Queries that are drawn at once, with their keys."""


def count(context: Context, settings: ArgumentSettings) -> CountedArguments:
    """Writes FLOP over k, r and h, one-sided paths, products of random queries and keys, and rotated positions."""
    torch.manual_seed(SEED)
    n, d = settings.length, settings.width
    counts = ArgumentCounts(
        recurrent_flop=counted_flop(make("recurrent", LayerSizes(d)), n, d, "cpu"),
        kernels_flop={k: counted_flop(make("convolutional", LayerSizes(d, kernel=k)), n, d) for k in settings.kernels},
        windows_flop={
            r: counted_flop(make("restricted self-attention", LayerSizes(d, window=r)), settings.window_length, d)
            for r in settings.windows
        },
        heads_flop={
            h: counted_flop(make_projected("self-attention", LayerSizes(d, n_heads=h)), n, d) for h in settings.heads
        },
        full_kernels=tuple(
            full_kernel(length, width) for length in settings.full_kernels for width in settings.full_kernel_widths
        ),
        one_sided_path={
            k: {length: one_sided_path(length, settings.paths.width, k) for length in settings.paths.lengths}
            for k in settings.path_kernels
        },
        softmax={d_k: products(settings.queries, settings.keys, d_k) for d_k in settings.products_d_k},
        positions={offset: rotation_error(settings.positions, d, offset) for offset in settings.offsets},
        settings=settings,
    )
    return CountedArguments(context.folder).write(counts)


def full_kernel(length: int, width: int) -> FullKernelCounts:
    """Counts a separable convolution with k = n, and self-attention followed by a point-wise layer (§4).

    The point-wise layer is one matrix of d × d. The paper's feed-forward layer has two of d × 4d: that is a factor in
    one term of n²·d + n·d², which both sums are.
    """
    separable = make("separable convolution", LayerSizes(width, kernel=length))
    attention = nn.Sequential(make("self-attention", LayerSizes(width)), nn.Linear(width, width))
    return FullKernelCounts(
        length=length,
        width=width,
        separable_flop=counted_flop(separable, length, width),
        attention_flop=counted_flop(attention, length, width),
    )


def one_sided_path(length: int, width: int, kernel: int) -> int:
    """Counts layers of causal convolutions, dilated by k from layer to layer, between the two ends of a sequence.

    An output can depend on the inputs up to its own position. The layers see k, k², k³ ... of them without a gap, which
    is the paper's log_k(n); a centred kernel sees only half as many to either side.
    """
    network = stack(lambda depth: CausalConvolution(LayerSizes(width, kernel, dilation=kernel**depth)))
    return least_steps(network, torch.ones(length, length, dtype=torch.bool).tril(), width)


def products(n_queries: int, n_keys: int, d_k: int) -> ProductCounts:
    """Measures random queries and keys, whose components are independent, of mean 0 and variance 1 (§3.2.1)."""
    drawn = []
    for first in range(0, n_queries, AT_ONCE):
        n = min(AT_ONCE, n_queries - first)
        q_NK1 = torch.randn(n, d_k, 1, dtype=torch.float64)
        k_NMK = torch.randn(n, n_keys, d_k, dtype=torch.float64)
        drawn.append((k_NMK @ q_NK1)[:, :, 0])
    products_NM = torch.cat(drawn)
    return ProductCounts(
        variance=float(products_NM.square().mean()),
        gradient_norm=_gradient_norm(products_NM),
        scaled_gradient_norm=_gradient_norm(products_NM / math.sqrt(d_k)),
    )


def _gradient_norm(products_NM: Tensor) -> float:
    jacobian_NMM = torch.func.vmap(torch.func.jacrev(lambda products_M: products_M.softmax(0)))(products_NM)
    return float(torch.linalg.matrix_norm(jacobian_NMM).mean())


def rotation(d_model: int, offset: int) -> Tensor:
    """Returns M_k of PE(pos + k) = M_k PE(pos) for k = `offset`, the same for every position (§3.5): m_DD, float64.

    It turns each pair of a sine and a cosine by the angle whose sine and cosine are that pair of PE(k).
    """
    pairs = sinusoids(1, d_model, first=offset).double().view(-1, 2).tolist()
    return torch.block_diag(*(torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64) for sin, cos in pairs))


def rotation_error(n_positions: int, d_model: int, offset: int) -> float:
    """Returns the largest difference between a component of PE(pos + offset) and of PE(pos) rotated.

    The encodings are the model's, in float32, which is good for 3e-8; they are rotated in float64.
    """
    pe_PD = sinusoids(n_positions, d_model).double()
    expected_PD = sinusoids(n_positions, d_model, first=offset).double()
    return float((pe_PD @ rotation(d_model, offset).T - expected_PD).abs().max())
