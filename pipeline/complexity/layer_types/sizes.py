"""Names of Table 1's layer types (§4); importable without torch."""

from dataclasses import dataclass
from typing import Literal, get_args

LayerType = Literal[
    "self-attention", "recurrent", "convolutional", "restricted self-attention", "separable convolution"
]
LAYER_TYPES: tuple[LayerType, ...] = get_args(LayerType)
"""The rows of Table 1, top to bottom, and the separable convolution of §4's text."""


@dataclass(frozen=True)
class LayerSizes:
    """The dimensions of a layer. Raises ValueError for an even kernel."""

    width: int
    kernel: int = 7
    """k: a convolution's kernel width; odd, so that it is symmetric."""
    window: int = 64
    """r: the neighbourhood of restricted self-attention."""
    dilation: int = 1
    """Distance between neighbouring positions of a kernel."""

    def __post_init__(self) -> None:
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel is {self.kernel}; it must be odd, to be symmetric")
