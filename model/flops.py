"""Floating point operations of training, counted from the sizes of the matrix products.

A product of (n, m) and (m, p) is 2·n·m·p operations. Softmax, norms, dropout, embedding look-ups and Adam are not
counted: at the paper's sizes they are less than 1 % of it. The paper's own estimate (§6.1, footnote 5) goes another
way, by time and rate, and comes out higher.
"""

from model.config import TransformerConfig


def forward_flop(
    config: TransformerConfig, rows: int, source_length: int, target_length: int, target_tokens: int
) -> int:
    """One forward pass of a padded batch of `rows` pairs; the logits of `target_tokens` real tokens alone are made."""
    d_model, heads = config.d_model, config.n_heads * (config.d_k + config.d_v)
    source, target = rows * source_length, rows * target_length
    projections = (
        2 * d_model * heads * (2 * source + 2 * target + source + target)
    )  # self, self; keys of and queries to the memory
    attention = 2 * rows * heads * (source_length**2 + target_length**2 + source_length * target_length)
    feed_forward = 4 * d_model * config.d_ff * (source + target)
    logits = 2 * target_tokens * d_model * config.vocabulary_size
    return config.n_layers * (projections + attention + feed_forward) + logits


def training_flop(
    config: TransformerConfig, rows: int, source_length: int, target_length: int, target_tokens: int
) -> int:
    """Forward and backward pass; the backward pass makes two products for each one of the forward pass."""
    return 3 * forward_flop(config, rows, source_length, target_length, target_tokens)
