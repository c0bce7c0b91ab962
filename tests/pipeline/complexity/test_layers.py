"""pipeline.complexity: each layer type computes its definition, and fits find the exponents of power laws."""

import random

import pytest
import torch

from model.banded import out_of_reach
from pipeline.complexity.exponents import crossing, fit
from pipeline.complexity.layers import make
from pipeline.complexity.settings import LayerSettings

SETTINGS, WIDTH = LayerSettings(kernel=3, window=4), 6
SIZES = (32, 64, 128, 256, 512)


def random_input(length: int) -> torch.Tensor:
    torch.manual_seed(length)
    return torch.randn(2, length, WIDTH, dtype=torch.float64)


def test_self_attention_is_equation_1_of_the_input() -> None:
    """softmax(X Xᵀ / √d) X over all positions, or over the window with restricted attention."""
    x_BLD = random_input(19)
    scores_BLL = x_BLD @ x_BLD.transpose(1, 2) / WIDTH**0.5
    torch.testing.assert_close(make("self-attention", SETTINGS, WIDTH)(x_BLD), scores_BLL.softmax(-1) @ x_BLD)
    scores_BLL = scores_BLL.masked_fill(out_of_reach(19, SETTINGS.window, x_BLD.device), -torch.inf)
    restricted = make("restricted self-attention", SETTINGS, WIDTH)
    torch.testing.assert_close(restricted(x_BLD), scores_BLL.softmax(-1) @ x_BLD)


def test_a_separable_convolution_is_the_product_of_its_two() -> None:
    separable = make("separable convolution", SETTINGS, WIDTH).double()
    (depthwise, pointwise), full = separable.children(), make("convolutional", SETTINGS, WIDTH).double()
    with torch.no_grad():
        full.convolution.weight.copy_(pointwise.weight[:, :, None] * depthwise.convolution.weight[:, 0])
        full.convolution.bias.copy_(pointwise(depthwise.convolution.bias))
    x_BLD = random_input(9)
    torch.testing.assert_close(separable(x_BLD), full(x_BLD))


def test_an_exact_power_law_is_found_exactly() -> None:
    assert fit([(x, 3 * x**1.5) for x in SIZES]) == pytest.approx((1.5, 0), abs=1e-9)


def test_the_interval_holds_the_exponent_19_times_in_20() -> None:
    source = random.Random(5)
    fitted = [fit([(x, x**2 * source.lognormvariate(0, 0.1)) for x in SIZES]) for _ in range(600)]
    assert 0.92 < sum(abs(each.value - 2) <= each.margin for each in fitted) / 600 < 0.98


def test_a_crossing_is_found_between_points() -> None:
    assert crossing([(x, x**2 / 100, 2.0 * x) for x in SIZES]) == pytest.approx(200)
