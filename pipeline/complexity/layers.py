"""The five layer types of Table 1 (paper §4), as modules from x_BLD to x_BLD.

    layer = make("restricted self-attention", LayerSettings(window=32), width=512)
    y_BLD = layer(x_BLD)

For a fair comparison, all have one input and one output of the same shape and no residual, norm or dropout.
Self-attention is eq. 1 with queries, keys and values equal to the input: the paper's O(n²·d) excludes the projections,
another O(n·d²).

Shapes: B batch, L length (the paper's n), D width (the paper's d).
"""

from torch import Tensor, nn

from model.attention import attention
from model.banded import neighbourhood_attention
from pipeline.complexity.settings import LayerSettings, LayerType


class SelfAttention(nn.Module):
    """Single-head scaled dot-product self-attention (eq. 1)."""

    def forward(self, x_BLD: Tensor) -> Tensor:
        """x_BLD -> x_BLD."""
        x_B1LD = x_BLD[:, None]
        return attention(x_B1LD, x_B1LD, x_B1LD)[:, 0]


class RestrictedSelfAttention(nn.Module):
    """The same, restricted to the `window` positions around each."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def forward(self, x_BLD: Tensor) -> Tensor:
        """x_BLD -> x_BLD."""
        x_B1LD = x_BLD[:, None]
        return neighbourhood_attention(x_B1LD, x_B1LD, x_B1LD, self.window)[:, 0]


class Recurrent(nn.Module):
    """Elman network: h_t = tanh(W x_t + U h_{t-1} + b), with h_0 = 0."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.network = nn.RNN(width, width, batch_first=True)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """x_BLD -> x_BLD."""
        y_BLD: Tensor = self.network(x_BLD)[0]
        return y_BLD


class Convolutional(nn.Module):
    """A convolution over positions, zero-padded at both ends: full, or depthwise if `groups` is `width`."""

    def __init__(self, width: int, kernel: int, groups: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=groups)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """x_BLD -> x_BLD."""
        y_BLD: Tensor = self.convolution(x_BLD.transpose(1, 2)).transpose(1, 2)
        return y_BLD


def make(layer_type: LayerType, settings: LayerSettings, width: int) -> nn.Module:
    """Builds a layer of the type with random weights."""
    match layer_type:
        case "self-attention":
            return SelfAttention()
        case "recurrent":
            return Recurrent(width)
        case "convolutional":
            return Convolutional(width, settings.kernel)
        case "restricted self-attention":
            return RestrictedSelfAttention(settings.window)
        case "separable convolution":
            # A depthwise convolution, then a product at each position (Chollet 2016).
            return nn.Sequential(Convolutional(width, settings.kernel, groups=width), nn.Linear(width, width))
