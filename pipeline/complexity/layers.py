"""The five layer types of Table 1 (paper §4), as modules from x_BLD to x_BLD.

    layer = make("restricted self-attention", LayerSettings(window=32), width=512)
    y_BLD = layer(x_BLD)

For a fair comparison, all have one input and one output of the same shape and no residual, norm or dropout.
Self-attention is eq. 1 with queries, keys and values equal to the input: the paper's O(n²·d) excludes the projections,
another O(n·d²).

Shapes: B batch, L length (the paper's n), D width (the paper's d); T = L where time steps are counted.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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

    def after(self, x_BLD: Tensor, steps: int) -> Tensor:
        """Recomputes all h_t from all h_{t-1}, `steps` times, starting from zeros: x_BLD.

        Each step takes every state to the next position; after L steps the result equals `forward`.
        """
        ((input_weight, state_weight, input_bias, state_bias),) = self.network.all_weights
        from_input_BLD = F.linear(x_BLD, input_weight, input_bias)
        states_BLD = torch.zeros_like(x_BLD)
        for _ in range(steps):
            before_BLD = F.pad(states_BLD, (0, 0, 1, 0))[:, :-1]
            states_BLD = torch.tanh(from_input_BLD + F.linear(before_BLD, state_weight, state_bias))
        return states_BLD


class Convolutional(nn.Module):
    """A full convolution over positions, zero-padded at both ends."""

    def __init__(self, width: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.convolution = _convolution(width, kernel, dilation, groups=1)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """x_BLD -> x_BLD."""
        y_BLD: Tensor = self.convolution(x_BLD.transpose(1, 2)).transpose(1, 2)
        return y_BLD


class SeparableConvolution(nn.Module):
    """A depthwise convolution, then a product at each position (Chollet 2016)."""

    def __init__(self, width: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.depthwise = _convolution(width, kernel, dilation, groups=width)
        self.pointwise = nn.Linear(width, width)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """x_BLD -> x_BLD."""
        y_BLD: Tensor = self.pointwise(self.depthwise(x_BLD.transpose(1, 2)).transpose(1, 2))
        return y_BLD


def make(layer_type: LayerType, settings: LayerSettings, width: int, dilation: int = 1) -> nn.Module:
    """Builds a layer of the type with random weights; `dilation` applies to convolutions."""
    match layer_type:
        case "self-attention":
            return SelfAttention()
        case "recurrent":
            return Recurrent(width)
        case "convolutional":
            return Convolutional(width, settings.kernel, dilation)
        case "restricted self-attention":
            return RestrictedSelfAttention(settings.window)
        case "separable convolution":
            return SeparableConvolution(width, settings.kernel, dilation)


def _convolution(width: int, kernel: int, dilation: int, groups: int) -> nn.Conv1d:
    padding = dilation * (kernel // 2)
    return nn.Conv1d(width, width, kernel, padding=padding, dilation=dilation, groups=groups)
