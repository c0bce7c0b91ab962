"""Floating-point operations of the matrix products, counted from §3's formulas: a product m × k by k × n is 2·m·n·k.

    counted = training_flop(config, source_lengths, target_lengths)     # of these pairs, once through

Exact for unpadded sentences. Not counted: softmax, norms, dropout, embedding look-ups, the optimizer. Attention counts
every query with every key, as the products do; the causal mask saves nothing. Lengths count END_ID; any sequence of
ints, array or tensor.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from model.config import TransformerConfig


def forward_flop(
    config: TransformerConfig, source_lengths: Tensor | Iterable[int], target_lengths: Tensor | Iterable[int]
) -> int:
    """Of one forward pass over sentence pairs of these lengths, the pre-softmax projection included."""
    source, target = (torch.as_tensor(lengths, dtype=torch.int64) for lengths in (source_lengths, target_lengths))
    n_source, n_target = int(source.sum()), int(target.sum())
    keys = config.n_heads * config.d_k
    values = config.n_heads * config.d_v
    queries_output = config.d_model * (keys + values)  # W_Q and W_O, for each position that asks
    keys_values = config.d_model * (keys + values)  # W_K and W_V, for each position that is looked at
    feed_forward = 2 * config.d_model * config.d_ff
    encoder = n_source * (queries_output + keys_values + feed_forward)
    decoder = n_target * (2 * queries_output + keys_values + feed_forward) + n_source * keys_values
    # Q Kᵀ and the weighted sum of V: every query with every key of its own sentence.
    looks = int((source * source).sum() + (target * target).sum() + (source * target).sum())
    projection = n_target * config.d_model * config.vocabulary_size
    return 2 * (config.n_layers * (encoder + decoder + looks * (keys + values)) + projection)


def training_flop(
    config: TransformerConfig, source_lengths: Tensor | Iterable[int], target_lengths: Tensor | Iterable[int]
) -> int:
    """Of forward and backward: each product y = x W has two of its size behind it, for x and for W."""
    return 3 * forward_flop(config, source_lengths, target_lengths)
