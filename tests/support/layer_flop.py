"""FLOP of the layer types' matrix products (paper §4), by formula.

    forward_flop("self-attention", LayerSizes(width=512), length=70)

A product of m × k by k × n takes 2·m·n·k. Softmax, tanh and biases are excluded, as in `model.flops`.
"""

from model.banded import count_pairs
from pipeline.complexity.layer_types.sizes import LayerSizes, LayerType


def forward_flop(layer_type: LayerType, sizes: LayerSizes, length: int) -> int:
    n, d, k = length, sizes.width, sizes.kernel
    match layer_type:
        case "self-attention":
            return 2 * (2 * n * n * d)  # Q Kᵀ, and the weights with V
        case "recurrent":
            return 2 * (2 * n * d * d)  # W x_t and U h_{t-1}
        case "convolutional":
            return 2 * (k * n * d * d)
        case "restricted self-attention":
            return 2 * (2 * count_pairs(n, sizes.window) * d)
        case "separable convolution":
            return 2 * (k * n * d + n * d * d)
