"""Counts the longest path between positions (Table 1), on the graph of what outputs depend on, by gradients.

    longest_path("convolutional", LayerSettings(), length=64, width=8, kernels="dilated")

A network of s steps is computed with random weights and random input, and an output position depends on an input
position if its gradient with respect to it is not zero. A step of a recurrent layer is one time step; of every other
type, one layer of a stack. The longest path is the least number of steps after which every output depends on each input
that it can depend on at all: in a recurrent layer those up to its own position, otherwise all.

Shapes: B outputs looked at at once, L length, D width.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from model.layer_types.modules import Recurrent, make
from model.layer_types.sizes import LayerType
from pipeline.complexity.settings import LayerSettings

Network = Callable[[Tensor, int], Tensor]
"""Computes the given number of steps: x_BLD -> x_BLD."""
Kernels = Literal["contiguous", "dilated"]
"""How a stack of convolutions sees further: with the same kernels in each layer, or with growing distances (§4)."""
AT_ONCE = 64
"""Outputs whose gradients are computed at once."""
CONVOLUTIONS: tuple[LayerType, ...] = ("convolutional", "separable convolution")


def network(layer_type: LayerType, settings: LayerSettings, width: int, kernels: Kernels = "dilated") -> Network:
    """Returns a random network of the type, of any number of steps; `kernels` are those of convolutions."""
    if layer_type == "recurrent":
        layer = make(layer_type, settings.sizes(width)).double()
        assert isinstance(layer, Recurrent)
        return layer.after
    layers: list[nn.Module] = []

    def stacked(x_BLD: Tensor, steps: int) -> Tensor:
        while len(layers) < steps:
            # The largest factor with which a stack has no gaps: a kernel sees kernel // 2 positions to each side.
            dilation = (settings.kernel // 2 + 1) ** len(layers) if kernels == "dilated" else 1
            layers.append(make(layer_type, settings.sizes(width, dilation)).double())
        for layer in layers[:steps]:
            x_BLD = layer(x_BLD)
        return x_BLD

    return stacked


def dependencies(compute: Network, steps: int, length: int, width: int) -> Tensor:
    """Returns depends_LL: whether an output (row) depends on an input (column) after `steps` steps."""
    x_LD = torch.randn(length, width, dtype=torch.float64)
    weights_D = torch.randn(width, dtype=torch.float64)
    rows = []
    for outputs_B in torch.arange(length).split(AT_ONCE):
        # One sequence for each output that is looked at, so that one backward pass gives the gradients of all.
        x_BLD = x_LD.repeat(len(outputs_B), 1, 1).requires_grad_()
        seen_B = (compute(x_BLD, steps) @ weights_D)[torch.arange(len(outputs_B)), outputs_B]
        (gradient_BLD,) = torch.autograd.grad(seen_B.sum(), x_BLD)
        rows.append((gradient_BLD != 0).any(dim=-1))
    return torch.cat(rows)


def longest_path(layer_type: LayerType, settings: LayerSettings, length: int, width: int, kernels: Kernels) -> int:
    """Returns the least number of steps after which every output depends on each input that it can depend on."""
    compute = network(layer_type, settings, width, kernels)
    wanted_LL = torch.ones(length, length, dtype=torch.bool)
    if layer_type == "recurrent":
        wanted_LL = dependencies(compute, length, length, width)

    def suffices(steps: int) -> bool:
        return bool((dependencies(compute, steps, length, width) | ~wanted_LL).all())

    low, high = 0, 1
    while high < length and not suffices(high):
        low, high = high, min(2 * high, length)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high
