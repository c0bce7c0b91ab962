"""The Transformer (paper §3): encoder, decoder, shared embedding; its base class is the competitors', too.

Post-norm as printed: every sub-layer is LayerNorm(x + Dropout(Sublayer(x))) (§3.1, §5.4).

Shapes: L positions, D = d_model, V vocabulary; N rows of a batch, one per token (`model.batch`).
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.attention import (
    AdditiveAttention,
    CrossAttention,
    DotProductAttention,
    ScaledDotProductAttention,
    SelfAttention,
)
from model.banded import NeighbourhoodAttention
from model.batch import EncoderOutput, Layout, Rows
from model.config import PAD_ID, TransformerConfig
from model.dropout import Dropout

MIN_CUDA_IDS = 3073
"""Fewer ids than this are padded on CUDA (`look_up`)."""
MOST_KEYS = 8192
"""The longest sentence whose attention weights can be dropped, in tokens."""
FIRST_POSITIONS = 256
"""Size of a new model's table of sinusoids, in positions."""


class EncoderDecoder(nn.Module):
    """An encoder and a decoder; both embeddings and the pre-softmax projection share one matrix (§3.4).

    `forward` returns hidden states; `logits` or the loss (`model.loss`) projects them to the vocabulary.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)  # times √d_model: unit variance

    def reserve_positions(self, n_positions: int) -> None:
        """Prepares for sentences of up to `n_positions` tokens; call it before training or search."""

    def encode(self, source: Rows) -> Any:
        """Encodes sentences; returns the input of `decode`."""
        raise NotImplementedError

    def decode(self, inputs: Rows, encoder_output: Any) -> Tensor:
        """Runs the decoder on the targets shifted right: hidden_ND, before the pre-softmax projection."""
        raise NotImplementedError

    def forward(self, source: Rows, inputs: Rows) -> Tensor:
        """Encodes and decodes: hidden_ND, before the pre-softmax projection."""
        return self.decode(inputs, self.encode(source))

    def logits(self, hidden: Tensor) -> Tensor:
        """Projects hidden states (..., D) to logits (..., V) by the transposed embedding (§3.4)."""
        return F.linear(hidden, self.embedding.weight)

    def _scaled_embeddings(self, tokens_N: Tensor) -> Tensor:
        return look_up(self.embedding.weight, tokens_N) * math.sqrt(self.config.d_model)


def look_up(table_XD: Tensor, ids_N: Tensor) -> Tensor:
    """Looks up rows of a table, which may require gradients: x_ND."""
    # For few indices, CUDA's backward kernel has a race (github.com/pytorch/pytorch issues 187687, 199569).
    is_trained = table_XD.requires_grad and torch.is_grad_enabled()
    missing = MIN_CUDA_IDS - len(ids_N) if is_trained and ids_N.device.type == "cuda" else 0
    if missing <= 0:
        return F.embedding(ids_N, table_XD)
    return F.embedding(F.pad(ids_N, (0, missing), value=PAD_ID), table_XD)[: len(ids_N)]


def sinusoids(n_positions: int, d_model: int) -> Tensor:
    """Computes PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos of the same (§3.5): pe_LD, float32.

    Angles are float64: at position 5,000 a float32 angle is off by 3e-4.
    """
    position_L1 = torch.arange(n_positions, dtype=torch.float64)[:, None]
    exponent_I = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    angle_LI = position_L1 / 10000.0**exponent_I
    return torch.stack((angle_LI.sin(), angle_LI.cos()), dim=-1).reshape(n_positions, d_model).float()


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 (§3.3)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        for layer in (self.w_1, self.w_2):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x_ND -> x_ND."""
        return self.w_2(F.relu(self.w_1(x), inplace=True))


class ResidualNorm(nn.LayerNorm):
    """LayerNorm(x + Dropout(y)) of a sub-layer's input x and output y (§3.1, §5.4)."""

    def __init__(self, config: TransformerConfig, place: str) -> None:
        super().__init__(config.d_model)
        self.dropout = Dropout(config.dropout, place, config.d_model)

    def forward(self, x: Tensor, y: Tensor, keys_N: Tensor | None) -> Tensor:  # type: ignore[override]
        """x_ND, y_ND -> x_ND, with the rows' keys for dropout."""
        x = x + self.dropout(y, keys_N)
        if x.dtype != torch.bfloat16 or x.device.type != "cpu" or not torch.is_grad_enabled():
            return super().forward(x)
        # On CPUs torch sums the gradients of weight and bias over the rows in bfloat16, where 256 + 1 = 256.
        return (F.layer_norm(x, self.normalized_shape, eps=self.eps) * self.weight).add_(self.bias)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with residual connection and LayerNorm (§3.1)."""

    def __init__(self, config: TransformerConfig, place: str) -> None:
        super().__init__()
        sizes = (config.d_model, config.n_heads, config.d_k, config.d_v)
        self.attention = SelfAttention(*sizes, _attention(config, f"{place}.weights", config.attention_window))
        self.attention_norm = ResidualNorm(config, f"{place}.attention")
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_norm = ResidualNorm(config, f"{place}.feed_forward")

    def forward(self, x_ND: Tensor, layout: Layout) -> Tensor:
        """x_ND -> x_ND."""
        x_ND = self.attention_norm(x_ND, self.attention(x_ND, layout), layout.row_keys)
        return self.feed_forward_norm(x_ND, self.feed_forward(x_ND), layout.row_keys)


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention and feed-forward, each with residual connection and LayerNorm (§3.1)."""

    def __init__(self, config: TransformerConfig, place: str) -> None:
        super().__init__()
        sizes = (config.d_model, config.n_heads, config.d_k, config.d_v)
        self.self_attention = SelfAttention(*sizes, _attention(config, f"{place}.self_weights"))
        self.self_attention_norm = ResidualNorm(config, f"{place}.self_attention")
        self.cross_attention = CrossAttention(*sizes, _attention(config, f"{place}.cross_weights"))
        self.cross_attention_norm = ResidualNorm(config, f"{place}.cross_attention")
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_norm = ResidualNorm(config, f"{place}.feed_forward")

    def forward(self, x_ND: Tensor, layout: Layout, encoder_output: EncoderOutput) -> Tensor:
        """x_ND -> x_ND; `layout` must be causal."""
        return self.forward_cached(x_ND, layout, self.cross_attention.keys(encoder_output))

    def forward_cached(self, x_ND: Tensor, layout: Layout, source: Any) -> Tensor:
        """The same, given the encoder output's keys and values (`CrossAttention.keys`)."""
        x_ND = self.self_attention_norm(x_ND, self.self_attention(x_ND, layout), layout.row_keys)
        x_ND = self.cross_attention_norm(x_ND, self.cross_attention(x_ND, layout, source), layout.row_keys)
        return self.feed_forward_norm(x_ND, self.feed_forward(x_ND), layout.row_keys)


class Transformer(EncoderDecoder):
    """The encoder and decoder of §3.1."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.encoder = nn.ModuleList(EncoderLayer(config, f"encoder.{i}") for i in range(config.n_layers))
        decoder = nn.ModuleList(DecoderLayer(config, f"decoder.{i}") for i in range(config.n_layers))
        self.dropout = Dropout(config.dropout, "embedding", config.d_model)
        self.decoder = cast("Sequence[DecoderLayer]", decoder)
        self.positions: nn.Embedding | None = None
        if config.positions == "learned":
            self.positions = nn.Embedding(config.max_positions, config.d_model)
            # One table for both stacks, of rms d_model^-0.5 (sinusoids: 0.71); the paper specifies neither (§3.5).
            nn.init.normal_(self.positions.weight, std=config.d_model**-0.5)
        self._sinusoids_LD: Tensor
        self.register_buffer("_sinusoids_LD", sinusoids(FIRST_POSITIONS, config.d_model), persistent=False)

    def reserve_positions(self, n_positions: int) -> None:
        """Computes sinusoids for up to `n_positions` positions; beyond, they are computed on each call.

        A CUDA graph reads the table that it was captured with, so call this first (`TrainingStep.capture`).
        """
        if n_positions > len(self._sinusoids_LD):
            self._sinusoids_LD = sinusoids(n_positions, self.config.d_model).to(self._sinusoids_LD)

    def _positions(self, n_positions: int) -> Tensor:
        if self.positions is not None:
            if n_positions > self.config.max_positions:
                raise ValueError(
                    f"a sentence has {n_positions} tokens, but the learned positions end at {self.config.max_positions}"
                )
            return self.positions.weight
        table_LD = self._sinusoids_LD
        if n_positions <= len(table_LD):
            return table_LD
        return sinusoids(n_positions, self.config.d_model).to(table_LD)

    def embed(self, tokens_N: Tensor, positions_N: Tensor, n_positions: int) -> Tensor:
        """Scales embeddings by √d_model and adds positions (§3.4, §3.5): x_ND.

        `n_positions` is above every position. Raises ValueError if it exceeds the table of learned positions.
        """
        return self._scaled_embeddings(tokens_N) + look_up(self._positions(n_positions), positions_N)

    def _positioned(self, x_ND: Tensor, rows: Rows) -> Tensor:
        """Adds positions and applies dropout (§5.4)."""
        x_ND = x_ND + look_up(self._positions(rows.n_positions), rows.positions_N)
        return self.dropout(x_ND, rows.layout.row_keys)

    def encode(self, source: Rows) -> EncoderOutput:
        """Encodes sentences: the last layer's x_ND, with its layout."""
        return self._encode(self._scaled_embeddings(source.tokens_N), source)

    def _encode(self, x_ND: Tensor, source: Rows) -> EncoderOutput:
        x_ND = self._positioned(x_ND, source)
        for layer in self.encoder:
            x_ND = layer(x_ND, source.layout)
        return EncoderOutput(x_ND, source.layout)

    def decode(self, inputs: Rows, encoder_output: EncoderOutput) -> Tensor:
        """Runs the decoder on the targets shifted right: hidden_ND, before the pre-softmax projection."""
        return self._decode(self._scaled_embeddings(inputs.tokens_N), inputs, encoder_output)

    def _decode(self, x_ND: Tensor, inputs: Rows, encoder_output: EncoderOutput) -> Tensor:
        x_ND = self._positioned(x_ND, inputs)
        layout = inputs.layout.causal(x_ND)
        for layer in self.decoder:
            x_ND = layer(x_ND, layout, encoder_output)
        return x_ND

    def forward(self, source: Rows, inputs: Rows) -> Tensor:
        """Encodes and decodes: hidden_ND, before the pre-softmax projection."""
        # One look-up for both sides, because each look-up's gradient is as large as the embedding matrix.
        x_ND = self._scaled_embeddings(torch.cat((source.tokens_N, inputs.tokens_N)))
        source_ND, inputs_ND = x_ND.split([len(source.tokens_N), len(inputs.tokens_N)])
        return self._decode(inputs_ND, inputs, self._encode(source_ND, source))


def _attention(config: TransformerConfig, place: str, window: int = 0) -> ScaledDotProductAttention:
    """Builds the attention function that the configuration names, restricted to a window unless that is 0."""
    rate = config.attention_dropout
    dropout = Dropout(rate, place, config.n_heads, 1, MOST_KEYS) if rate else None
    if window:
        return NeighbourhoodAttention(window, dropout)
    if config.attention == "additive":
        return AdditiveAttention(config.n_heads, config.d_k, dropout)
    return (DotProductAttention if config.attention == "dot_product" else ScaledDotProductAttention)(dropout)
