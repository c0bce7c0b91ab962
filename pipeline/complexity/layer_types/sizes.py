"""The layer types of Table 1 (§4) and attention functions (§3.2.1) by name; without torch, which imports slowly."""

from dataclasses import dataclass
from typing import Literal, get_args

LayerType = Literal[
    "self-attention", "recurrent", "convolutional", "restricted self-attention", "separable convolution"
]
LAYER_TYPES: tuple[LayerType, ...] = get_args(LayerType)
"""The rows of Table 1, top to bottom, and the separable convolution that the text of §4 adds."""
Projected = Literal["self-attention", "restricted self-attention"]
AttentionFunction = Literal["additive", "dot-product", "scaled dot-product"]
"""What §3.2.1 compares; the second is not scaled by 1/√d_k."""
ATTENTION_FUNCTIONS: tuple[AttentionFunction, ...] = get_args(AttentionFunction)


@dataclass(frozen=True)
class LayerSizes:
    """The sizes of a layer. Raises ValueError if the kernel has no middle."""

    width: int
    kernel: int = 7
    """k, the positions that a convolution sees; odd, so that it sees as many to either side."""
    window: int = 64
    """r, the positions that restricted self-attention sees."""
    n_heads: int = 8
    """Of projected self-attention; without projections there is one head."""
    dilation: int = 1
    """The distance between two positions that a convolution sees."""

    def __post_init__(self) -> None:
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel is {self.kernel}; it must be odd, to have a middle")
