"""FLOP of the layer types' matrix products (paper §4), by formula.

    forward_flop("self-attention", LayerSettings(), length=70, width=512)

A product of m × k by k × n takes 2·m·n·k. Softmax, tanh and biases are excluded, as in `model.flops`.
"""

from model.banded import count_pairs
from pipeline.complexity.settings import LayerSettings, LayerType


def forward_flop(layer_type: LayerType, settings: LayerSettings, length: int, width: int) -> int:
    """Counts one forward pass over one sequence of `length` positions (the paper's n)."""
    n, d, k = length, width, settings.kernel
    match layer_type:
        case "self-attention":
            return 2 * (2 * n * n * d)  # Q Kᵀ, and the weights with V
        case "recurrent":
            return 2 * (2 * n * d * d)  # W x_t and U h_{t-1}
        case "convolutional":
            return 2 * (k * n * d * d)
        case "restricted self-attention":
            return 2 * (2 * count_pairs(n, settings.window) * d)
        case "separable convolution":
            return 2 * (k * n * d + n * d * d)
