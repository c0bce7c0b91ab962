"""Counts for the layer types: FLOP without computing, and path lengths by gradients."""

import math
from pathlib import Path

import pytest
import torch

from model.banded import count_pairs
from pipeline.complexity.count import Kernels, count, longest_path
from pipeline.complexity.settings import LAYER_TYPES, LayerSettings, LayerType, PathSettings, SweepSettings
from pipeline.store.artifact import Context

SETTINGS = LayerSettings(kernel=5, window=6)


def expected(layer_type: LayerType, kernels: Kernels, n: int) -> int:
    half = SETTINGS.kernel // 2
    match layer_type:
        case "self-attention":
            return 1
        case "recurrent":
            return n
        case "restricted self-attention":
            return math.ceil((n - 1) / 2)  # r = 6: three positions to the left, two to the right
        case _ if kernels == "contiguous":
            return math.ceil((n - 1) / half)
        case _:
            return next(layers for layers in range(1, n) if (half + 1) ** layers >= n)


@pytest.mark.parametrize("kernels", ["dilated", "contiguous"])
@pytest.mark.parametrize("layer_type", LAYER_TYPES)
def test_paths_are_as_long_as_worked_out_by_hand(layer_type: LayerType, kernels: Kernels) -> None:
    """Paths take 1 layer, n steps, n/r or n/k layers, or logarithmically many layers of dilated kernels."""
    torch.manual_seed(3)
    lengths = [longest_path(layer_type, SETTINGS, n, 4, kernels) for n in (5, 9, 12)]
    assert lengths == [expected(layer_type, kernels, n) for n in (5, 9, 12)]


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


def test_the_stage_counts_every_type_at_every_size(tmp_path: Path) -> None:
    sweep = SweepSettings(lengths=(8, 16, 32), width=4, widths=(2, 4, 8), separable_widths=(6, 10, 12), length=16)
    counted = count(Context(tmp_path), SETTINGS, sweep, PathSettings(lengths=(6,), width=4)).load()
    assert [layer.name for layer in counted.layers] == list(LAYER_TYPES)
    for layer in counted.layers:
        widths = [6, 10, 12] if layer.name == "separable convolution" else [2, 8]  # 4 is in the sweep over n, too
        swept = [(8, 4), (16, 4), (32, 4), *((16, width) for width in widths)]
        assert [(size.length, size.width) for size in layer.sizes] == swept
        for size in layer.sizes:
            assert size.counted_flop == forward_flop(layer.name, SETTINGS, size.length, size.width)
        assert bool(layer.longest_path_contiguous) == ("convolution" in layer.name)
        assert layer.sequential_operations.keys() == layer.longest_path.keys() == {6}
