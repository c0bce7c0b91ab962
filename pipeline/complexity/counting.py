"""Counts a layer's operations without measuring time: FLOP by torch's own counter, and products in sequence.

counted_flop(layer, length=512, width=256)         # of a forward pass
products_in_sequence(layer, length=64, width=8)    # 1 for a convolution, 64 for a recurrent layer
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry


def counted_flop(layer: nn.Module, length: int, width: int, device: str = "meta") -> int:
    """Returns the FLOP of a forward pass over one sequence, as torch counts them.

    Nothing is computed on the device `meta`, where tensors have a shape alone. The backward pass is not counted: there
    torch 2.13 takes a depthwise convolution for a full one, and counts k·n·d² instead of k·n·d.
    """
    x_BLD = torch.zeros(1, length, width, device=device)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer.to(device)(x_BLD)
    return counter.get_total_flops()


def products_in_sequence(layer: nn.Module, length: int, width: int) -> int:
    """Counts the matrix products and convolutions of which each waits for the one before: the longest such chain.

    This is Table 1's number of sequential operations, read from a forward pass. Other operations do not count; each
    kind of layer has a fixed number of them around each product.
    """
    with torch.no_grad(), _Depths() as depths:
        layer(torch.randn(1, length, width))
    return depths.deepest


class _Depths(TorchDispatchMode):
    """Follows, through all operations, how many products stand one after the other behind each tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.deepest = 0
        self._depths: dict[int, int] = {}
        """The depth of each tensor, by identity."""
        self._kept: list[Tensor] = []
        """The tensors themselves, so that no other gets the identity of one that is gone."""

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
