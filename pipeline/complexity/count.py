"""Counts the cost of Table 1's layer types (paper §4), with the same result on every machine.

    counted_flop(layer, length=512, width=256)         # of a forward pass, by torch's counter
    products_in_sequence(layer, length=64, width=8)    # 1 for a convolution, 64 for a recurrent layer
    longest_path("convolutional", LayerSettings(), length=64, width=8, kernels="dilated")

The longest path between positions is determined from gradients. A network of s steps is run with random weights and
input; an output position depends on an input position if its gradient with respect to it is not zero. A step is one
time step of a recurrent layer, or one layer of a stack of any other type. The longest path is the smallest number of
steps after which every output depends on all inputs that it can depend on: in a recurrent layer those up to its own
position, otherwise all.

Shapes: B outputs examined at a time, L length, D width.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from pipeline.complexity.layers import Recurrent, make
from pipeline.complexity.records import Counts, CountsArtifact, LayerCounts, SizeCounts
from pipeline.complexity.settings import LAYER_TYPES, LayerSettings, LayerType, PathSettings, SweepSettings
from pipeline.store.artifact import Context

SEED = 1
Network = Callable[[Tensor, int], Tensor]
"""Runs the given number of steps: x_BLD -> x_BLD."""
Kernels = Literal["contiguous", "dilated"]
"""How a stack of convolutions widens its view: the same kernels in each layer, or growing dilation (§4)."""
AT_ONCE = 64
"""Outputs whose gradients are computed at a time."""
CONVOLUTIONS: tuple[LayerType, ...] = ("convolutional", "separable convolution")


def count(context: Context, settings: LayerSettings, sweep: SweepSettings, paths: PathSettings) -> CountsArtifact:
    """Writes FLOP, sequential operations and longest paths."""
    torch.manual_seed(SEED)
    counted = []
    for done, layer_type in enumerate(LAYER_TYPES):
        context.progress(done, len(LAYER_TYPES), "layer types")
        counted.append(_layer(layer_type, settings, sweep, paths))
    return CountsArtifact(context.folder).write(
        Counts(layers=tuple(counted), settings=settings, sweep=sweep, paths=paths)
    )


def _layer(layer_type: LayerType, settings: LayerSettings, sweep: SweepSettings, paths: PathSettings) -> LayerCounts:
    def path(kernels: Kernels) -> dict[int, int]:
        return {n: longest_path(layer_type, settings, n, paths.width, kernels) for n in paths.lengths}

    probe = make(layer_type, settings, paths.width)
    return LayerCounts(
        name=layer_type,
        sizes=tuple(
            SizeCounts(length=n, width=d, counted_flop=counted_flop(make(layer_type, settings, d), n, d))
            for n, d in sweep.points(layer_type)
        ),
        sequential_operations={n: products_in_sequence(probe, n, paths.width) for n in paths.lengths},
        longest_path=path("dilated"),
        longest_path_contiguous=path("contiguous") if layer_type in CONVOLUTIONS else {},
    )


def counted_flop(layer: nn.Module, length: int, width: int) -> int:
    """Counts the FLOP of a forward pass over one sequence by torch's counter.

    Excludes the backward pass, for which torch 2.13 takes a depthwise convolution for a full one and counts k·n·d²
    instead of k·n·d.
    """
    # `meta` tensors have only a shape, so nothing is computed; for one step at a time, computing is faster.
    device = "cpu" if isinstance(layer, Recurrent) else "meta"
    x_BLD = torch.zeros(1, length, width, device=device)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer.to(device)(x_BLD)
    return counter.get_total_flops()


def products_in_sequence(layer: nn.Module, length: int, width: int) -> int:
    """Counts the longest chain of matrix products and convolutions that wait for each other.

    This is Table 1's number of sequential operations, determined from a forward pass. Other operations are ignored,
    since each layer type has a fixed number of them around each product.
    """
    with torch.no_grad(), _Depths() as depths:
        layer(torch.randn(1, length, width))
    return depths.deepest


class _Depths(TorchDispatchMode):
    """Tracks the number of sequential products behind each tensor, through all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.deepest = 0
        self._depths: dict[int, int] = {}
        """Depth by tensor identity."""
        self._kept: list[Tensor] = []
        """Keeps the tensors alive, so that identities are not reused."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        operands = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        is_product = func.overloadpacket in flop_registry
        depth = max((self._depths.get(id(tensor), 0) for tensor in operands), default=0) + is_product
        for tensor in (value for value in tree_leaves(result) if isinstance(value, Tensor)):
            self._depths[id(tensor)] = depth
            self._kept.append(tensor)
        self.deepest = max(self.deepest, depth)
        return result


def network(layer_type: LayerType, settings: LayerSettings, width: int, kernels: Kernels = "dilated") -> Network:
    """Returns a random network of the type, for any number of steps; `kernels` applies to convolutions."""
    if layer_type == "recurrent":
        layer = make(layer_type, settings, width).double()
        assert isinstance(layer, Recurrent)
        return layer.after
    # The largest dilation factor that leaves no gaps: a kernel sees kernel // 2 positions on either side.
    factor = settings.kernel // 2 + 1 if kernels == "dilated" else 1
    layers: list[nn.Module] = []

    def stacked(x_BLD: Tensor, steps: int) -> Tensor:
        while len(layers) < steps:
            layers.append(make(layer_type, settings, width, factor ** len(layers)).double())
        for at_depth in layers[:steps]:
            x_BLD = at_depth(x_BLD)
        return x_BLD

    return stacked


def dependencies(compute: Network, steps: int, length: int, width: int) -> Tensor:
    """Returns depends_LL: whether an output (row) depends on an input (column) after `steps` steps."""
    x_LD = torch.randn(length, width, dtype=torch.float64)
    weights_D = torch.randn(width, dtype=torch.float64)
    rows = []
    for outputs_B in torch.arange(length).split(AT_ONCE):
        # One sequence per examined output, so that one backward pass yields all gradients.
        x_BLD = x_LD.repeat(len(outputs_B), 1, 1).requires_grad_()
        seen_B = (compute(x_BLD, steps) @ weights_D)[torch.arange(len(outputs_B)), outputs_B]
        (gradient_BLD,) = torch.autograd.grad(seen_B.sum(), x_BLD)
        rows.append((gradient_BLD != 0).any(dim=-1))
    return torch.cat(rows)


def longest_path(layer_type: LayerType, settings: LayerSettings, length: int, width: int, kernels: Kernels) -> int:
    """Returns the smallest number of steps after which every output depends on all inputs that it can depend on."""
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
