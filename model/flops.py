"""Floating-point operations of matrix products (§3), and parameter counts (Table 3).

    counted = training_flop(config, source_lengths, target_lengths)     # one pass over these sentence pairs

Multiplying m × k by k × n takes 2·m·n·k operations. Counts are exact for unpadded sentences of any architecture and
exclude softmax, norms, dropout, embedding look-ups and the optimizer. Attention counts every query-key pair, since the
causal mask saves no computation; restricted attention counts the pairs that it computes. Lengths include END_ID and may
be any sequence of ints, an array or a tensor.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from model.architectures import make_model
from model.banded import count_pairs
from model.baselines.convolutional import KERNEL_WIDTH
from model.config import TransformerConfig


@cache
def count_parameters(config: TransformerConfig) -> int:
    """Counts a model's parameters without writing them, so their memory is never touched."""
    with _Unwritten():
        return sum(parameter.numel() for parameter in make_model(config).parameters())


class _Unwritten(TorchFunctionMode):
    """Skips initialization. The meta device would import torch's compiler for it, which takes seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in ("normal_", "uniform_", "kaiming_uniform_", "fill_", "zero_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def forward_flop(
    config: TransformerConfig, source_lengths: Tensor | Iterable[int], target_lengths: Tensor | Iterable[int]
) -> int:
    """Counts one forward pass over sentence pairs of these lengths, pre-softmax projection included."""
    source, target = (torch.as_tensor(lengths, dtype=torch.int64) for lengths in (source_lengths, target_lengths))
    projection = int(target.sum()) * config.d_model * config.vocabulary_size
    return 2 * (PRODUCTS[config.architecture](config, source, target) + projection)


def _transformer(config: TransformerConfig, source: Tensor, target: Tensor) -> int:
    n_source, n_target = int(source.sum()), int(target.sum())
    keys = config.n_heads * config.d_k
    values = config.n_heads * config.d_v
    queries_output = config.d_model * (keys + values)  # W_Q and W_O, per query position
    keys_values = config.d_model * (keys + values)  # W_K and W_V, per key position
    feed_forward = 2 * config.d_model * config.d_ff
    encoder = n_source * (queries_output + keys_values + feed_forward)
    decoder = n_target * (2 * queries_output + keys_values + feed_forward) + n_source * keys_values
    # Q Kᵀ and the weighted sum of V, for every query-key pair of a sentence.
    query_key_pairs = int((target * target).sum() + (source * target).sum()) + _encoder_pairs(config, source)
    products = config.n_layers * (encoder + decoder + query_key_pairs * (keys + values))
    if config.attention == "additive":  # W q and U k of the three attentions; v · tanh(...) is as wide as Q Kᵀ
        products += config.n_layers * 3 * (n_source + n_target) * keys * config.d_k
    return products


def _recurrent(config: TransformerConfig, source: Tensor, target: Tensor) -> int:
    width, above = config.d_ff, config.n_layers - 1
    first = 4 * width * (config.d_model + width // 2)  # two directions, each half as wide
    keys = width * width
    encoder = first + above * 4 * width * (width + width) + keys
    query_output = width * width + width * config.d_model
    decoder = 4 * width * (config.d_model + width) + above * 4 * width * (2 * width + width) + query_output
    # vᵀ tanh(...) and the weighted sum of values, for every target-source pair.
    query_key_pairs = int((source * target).sum()) * 2 * width
    return int(source.sum()) * encoder + int(target.sum()) * decoder + query_key_pairs


def _convolutional(config: TransformerConfig, source: Tensor, target: Tensor) -> int:
    width, d_model = config.d_ff, config.d_model
    convolution = KERNEL_WIDTH * width * 2 * width  # windows at sentence ends count in full
    input_output = 2 * d_model * width
    encoder = input_output + config.n_layers * convolution
    decoder = input_output + config.n_layers * (convolution + 2 * width * d_model)
    query_key_pairs = int((source * target).sum()) * config.n_layers * 2 * d_model
    return int(source.sum()) * encoder + int(target.sum()) * decoder + query_key_pairs


PRODUCTS = {"transformer": _transformer, "recurrent": _recurrent, "convolutional": _convolutional}
"""Functions that count the multiplications of all matrix products except the pre-softmax projection."""


def _encoder_pairs(config: TransformerConfig, source: Tensor) -> int:
    """Counts the query-key pairs of one encoder layer's self-attention."""
    if not config.attention_window or config.attention_dropout:  # dropout needs all weights
        return int((source * source).sum())
    lengths, counts = source.unique(return_counts=True)
    return sum(
        count * count_pairs(length, config.attention_window)
        for length, count in zip(lengths.tolist(), counts.tolist(), strict=True)
    )


def training_flop(
    config: TransformerConfig, source_lengths: Tensor | Iterable[int], target_lengths: Tensor | Iterable[int]
) -> int:
    """Counts forward and backward: the backward pass takes two products per y = x W, for the gradients of x and W."""
    return 3 * forward_flop(config, source_lengths, target_lengths)
