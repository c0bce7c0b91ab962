"""Counts for the layer types: FLOP without computing."""

from pathlib import Path

from model.banded import count_pairs
from pipeline.complexity.count import count
from pipeline.complexity.settings import LAYER_TYPES, LayerSettings, LayerType, SweepSettings
from pipeline.context import Context

SETTINGS = LayerSettings(kernel=5, window=6)


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
    counted = count(Context(tmp_path), SETTINGS, sweep).load()
    assert [layer.name for layer in counted.layers] == list(LAYER_TYPES)
    for layer in counted.layers:
        widths = [6, 10, 12] if layer.name == "separable convolution" else [2, 8]  # 4 is in the sweep over n, too
        swept = [(8, 4), (16, 4), (32, 4), *((16, width) for width in widths)]
        assert [(size.length, size.width) for size in layer.sizes] == swept
        for size in layer.sizes:
            assert size.counted_flop == forward_flop(layer.name, SETTINGS, size.length, size.width)
