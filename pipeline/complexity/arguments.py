"""The stages that count and time what the paper argues of layers in words (§3.2, §3.5, §4), beside Table 1.

Most counts are FLOP, by torch's own counter. What is random is drawn with a fixed seed, so the counts are the same
everywhere but for rounding. Every layer is timed once a round, as those of Table 1 are, and its peak memory measured
before.

Shapes: N queries, M keys, K = d_k, P positions, D = d_model; B sequences, L length, H heads.
"""

import math
import time
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.transformer import sinusoids
from pipeline.complexity.count import SEED, counted_flop, least_steps, stack
from pipeline.complexity.figures import (
    ArgumentCounts,
    ArgumentTimes,
    CountedArguments,
    FullKernelCounts,
    PassMeasurements,
    ProductCounts,
    TimedArguments,
)
from pipeline.complexity.layer_types.attention_functions import make_function
from pipeline.complexity.layer_types.modules import CausalConvolution, make, make_projected
from pipeline.complexity.layer_types.sizes import ATTENTION_FUNCTIONS, LayerSizes
from pipeline.complexity.measure import costs, device_of, machine_of, random_input, threads_of
from pipeline.complexity.settings import ArgumentSettings, TimingSettings
from pipeline.store.artifact import Context

AT_ONCE = 1024
"""Queries that are drawn at once, with their keys."""


class Swept(NamedTuple):
    """A layer that is counted and timed, over sequences of `length` positions."""

    sweep: str
    value: int
    """Of k, r or h; the width of the recurrent layer."""
    layer: nn.Module
    length: int


def swept(settings: ArgumentSettings) -> Iterator[Swept]:
    """Makes the recurrent layer that others are compared with, and layers over k, r and h."""
    d, n = settings.width, settings.length
    yield Swept("recurrent", d, make("recurrent", LayerSizes(d)), n)
    for k in settings.kernels:
        yield Swept("kernels", k, make("convolutional", LayerSizes(d, kernel=k)), n)
    for r in settings.windows:
        layer = make("restricted self-attention", LayerSizes(d, window=r))
        yield Swept("windows", r, layer, settings.window_length)
    for h in settings.heads:
        yield Swept("heads", h, make_projected("self-attention", LayerSizes(d, n_heads=h)), n)


def count(context: Context, settings: ArgumentSettings) -> CountedArguments:
    """Writes FLOP over k, r and h, one-sided paths, products of random queries and keys, and rotated positions."""
    torch.manual_seed(SEED)
    flop: dict[str, dict[int, int]] = {}
    for sweep, value, layer, length in swept(settings):
        flop.setdefault(sweep, {})[value] = counted_flop(layer, length, settings.width)
    return CountedArguments(context.folder).write(
        ArgumentCounts(
            recurrent_flop=flop["recurrent"][settings.width],
            kernels_flop=flop["kernels"],
            windows_flop=flop["windows"],
            heads_flop=flop["heads"],
            full_kernels=tuple(
                full_kernel(length, width) for length in settings.full_kernels for width in settings.full_kernel_widths
            ),
            one_sided_path={
                k: {length: one_sided_path(length, settings.paths.width, k) for length in settings.paths.lengths}
                for k in settings.path_kernels
            },
            softmax={d_k: products(settings.queries, settings.keys, d_k) for d_k in settings.products_d_k},
            positions={
                offset: rotation_error(settings.positions, settings.width, offset) for offset in settings.offsets
            },
            settings=settings,
        )
    )


class SelfAttentionBy(nn.Module):
    """An attention function of queries, keys and values that are equal to the input."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, x_BHLK: Tensor) -> Tensor:
        """x_BHLK -> x_BHLK."""
        y_BHLK: Tensor = self.function(x_BHLK, x_BHLK, x_BHLK)
        return y_BHLK


def time_(context: Context, settings: ArgumentSettings, timing: TimingSettings) -> TimedArguments:
    """Writes times and peak memory of the layers, and of the attention functions of §3.2.1 over d_k.

    Raises UserError if a GPU is asked for and there is none.
    """
    device = device_of(context, timing)
    started_s = time.monotonic()
    torch.manual_seed(SEED)
    with threads_of(timing):
        cases = {}
        for sweep, value, layer, length in swept(settings):
            cases[sweep, value] = layer.to(device), random_input(timing.batch, length, settings.width, device)
        n_heads, length = settings.attention_heads, settings.attention_length
        for d_k in settings.attention_d_k:
            x_BHLK = random_input(timing.batch * n_heads, length, d_k, device).view(timing.batch, n_heads, length, d_k)
            for function in ATTENTION_FUNCTIONS:
                cases[function, d_k] = SelfAttentionBy(make_function(function, n_heads, d_k)).to(device), x_BHLK
        times: dict[str, dict[int, PassMeasurements]] = {}
        for (sweep, value), (peak, rounds) in zip(cases, costs(context, list(cases.values()), timing), strict=True):
            measured = PassMeasurements(rounds_s=tuple(map(sum, rounds)), peak_bytes=peak)
            times.setdefault(sweep, {})[value] = measured
        machine = machine_of(device, timing, started_s)
    return TimedArguments(context.folder).write(
        ArgumentTimes(
            recurrent=times["recurrent"][settings.width],
            kernels=times["kernels"],
            windows=times["windows"],
            heads=times["heads"],
            functions={function: times[function] for function in ATTENTION_FUNCTIONS},
            settings=settings,
            **machine.model_dump(),
        )
    )


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
