"""pipeline.complexity.layer_types: each type computes its definition."""

from typing import get_args

import pytest
import torch
from torch.nn import functional as F

from model.attention import attention
from model.banded import out_of_reach
from pipeline.complexity.layer_types.modules import Convolutional, SeparableConvolution, make, make_projected
from pipeline.complexity.layer_types.sizes import LayerSizes, Projected

SIZES = LayerSizes(width=6, kernel=3, window=4, n_heads=2)


def random_input(length: int) -> torch.Tensor:
    """Returns two random sequences."""
    torch.manual_seed(length)
    return torch.randn(2, length, SIZES.width, dtype=torch.float64)


def test_self_attention_is_equation_1_of_the_input() -> None:
    """softmax(X Xᵀ / √d) X over all positions, or over the window with restricted attention."""
    x_BLD = random_input(19)
    scores_BLL = x_BLD @ x_BLD.transpose(1, 2) / SIZES.width**0.5
    torch.testing.assert_close(make("self-attention", SIZES)(x_BLD), scores_BLL.softmax(-1) @ x_BLD)
    scores_BLL = scores_BLL.masked_fill(out_of_reach(19, SIZES.window, x_BLD.device), -torch.inf)
    torch.testing.assert_close(make("restricted self-attention", SIZES)(x_BLD), scores_BLL.softmax(-1) @ x_BLD)


def test_projected_attention_has_its_heads() -> None:
    """Each head attends with its own slice of the projections."""
    layer = make_projected("self-attention", SIZES).double()
    x_BLD = random_input(7)
    own = layer.attention
    assert not isinstance(own, torch.Tensor)
    q, k, v = (F.linear(x_BLD, w).view(2, 7, 2, 3).transpose(1, 2) for w in own.w_qkv.weight.chunk(3))
    joined_BLD = attention(q, k, v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(layer(x_BLD), F.linear(joined_BLD, own.w_o.weight))


@pytest.mark.parametrize("layer_type", get_args(Projected))
def test_projected_attention_takes_any_number_of_rows_in_bfloat16(layer_type: Projected) -> None:
    """A CPU pads the rows to a multiple of 64. The output keeps the input's shape and is close to float32's."""
    torch.manual_seed(4)
    layer, x_BLD = make_projected(layer_type, SIZES), torch.randn(3, 19, SIZES.width)
    expected_BLD = layer(x_BLD)
    x_BLD = x_BLD.bfloat16().requires_grad_()
    y_BLD = layer.bfloat16()(x_BLD)
    assert y_BLD.shape == x_BLD.shape
    torch.testing.assert_close(y_BLD.float(), expected_BLD, rtol=0.05, atol=0.05)
    y_BLD.sum().backward()
    assert x_BLD.grad is not None
    assert x_BLD.grad.isfinite().all()


def test_a_separable_convolution_is_the_product_of_its_two() -> None:
    """A full convolution with the kernels' product computes the same."""
    separable = make("separable convolution", SIZES).double()
    full = make("convolutional", SIZES).double()
    assert isinstance(separable, SeparableConvolution)
    assert isinstance(full, Convolutional)
    assert separable.depthwise.bias is not None
    assert full.convolution.bias is not None
    with torch.no_grad():
        full.convolution.weight.copy_(separable.pointwise.weight[:, :, None] * separable.depthwise.weight[:, 0])
        full.convolution.bias.copy_(separable.pointwise(separable.depthwise.bias))
    x_BLD = random_input(9)
    torch.testing.assert_close(separable(x_BLD), full(x_BLD))
