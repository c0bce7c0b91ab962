"""The Transformer (paper §3): encoder, decoder, shared embedding.

Post-norm as printed: every sub-layer is LayerNorm(x + Dropout(Sublayer(x))) (§3.1, §5.4).

Shapes: B batch, S source length, T target length, D = d_model, V vocabulary; N the rows of a batch, one
per position (`model.rows`). A bias is -inf where a query must not look and 0 elsewhere.
"""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.attention import MultiHeadAttention
from model.banded import NeighbourhoodAttention
from model.config import PAD_ID, TransformerConfig
from model.dropout import Dropout
from model.positions import sinusoids
from model.rows import Layout, Memory, filled


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


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with residual and norm (§3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        sizes = (config.d_model, config.n_heads, config.d_k, config.d_v)
        window, dropout = config.attention_window, config.attention_dropout
        self.attention = (
            NeighbourhoodAttention(*sizes, window, dropout) if window else MultiHeadAttention(*sizes, dropout)
        )
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_ND: Tensor, layout: Layout, padding_B11S: Tensor | None) -> Tensor:
        """x_ND -> x_ND; the bias `padding_B11S` hides padding and is None if there is none."""
        attended_ND = self.attention(x_ND, layout, Memory(x_ND, layout, padding_B11S))
        x_ND = self.attention_norm(x_ND + self.dropout(attended_ND))
        return self.feed_forward_norm(x_ND + self.dropout(self.feed_forward(x_ND)))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output and feed-forward, each with residual and norm (§3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        sizes = (config.d_model, config.n_heads, config.d_k, config.d_v)
        self.self_attention = MultiHeadAttention(*sizes, config.attention_dropout)
        self.self_attention_norm = nn.LayerNorm(config.d_model)
        self.cross_attention = MultiHeadAttention(*sizes, config.attention_dropout)
        self.cross_attention_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_ND: Tensor, layout: Layout, causal_TT: Tensor | None, memory: Memory) -> Tensor:
        """x_ND -> x_ND; the bias `causal_TT` hides later positions, and `memory` is the encoder's output."""
        attended_ND = self.self_attention(x_ND, layout, Memory(x_ND, layout, causal_TT))
        x_ND = self.self_attention_norm(x_ND + self.dropout(attended_ND))
        attended_ND = self.cross_attention(x_ND, layout, memory)
        x_ND = self.cross_attention_norm(x_ND + self.dropout(attended_ND))
        return self.feed_forward_norm(x_ND + self.dropout(self.feed_forward(x_ND)))


class Transformer(nn.Module):
    """The encoder and decoder; both embeddings and the pre-softmax projection share one matrix (§3.4)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)  # times √d_model: unit variance
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layers))
        decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.n_layers))
        self.decoder = cast("Sequence[DecoderLayer]", decoder)
        self.dropout = Dropout(config.dropout)
        self.projection: nn.Module | None = None
        """Takes the embedding's place before the softmax where its weights are quantized (`model.int8`)."""
        self.positions: nn.Embedding | None = None
        if config.positions == "learned":
            self.positions = nn.Embedding(config.max_positions, config.d_model)
            # One table for both stacks, of rms d_model^-0.5 where sinusoids have 0.71: the paper says neither (§3.5).
            nn.init.normal_(self.positions.weight, std=config.d_model**-0.5)
        self._sinusoids_LD: Tensor
        self.register_buffer("_sinusoids_LD", sinusoids(256, config.d_model), persistent=False)

    def embed(self, tokens_BL: Tensor, at: int | None = None) -> Tensor:
        """Adds positions to the embeddings times √d_model and applies dropout (§3.4, §3.5, §5.4): x_ND.

        Positions count from 0 along each row of `tokens_BL`, unless `at` is given: then all tokens have that one.
        """
        dtype = self.embedding.weight.dtype
        n_positions = tokens_BL.shape[1] if at is None else at + 1
        position_L = torch.arange(at or 0, n_positions, device=tokens_BL.device)
        tokens_N = filled(tokens_BL.flatten(), dtype)
        position_N = filled(position_L.expand(tokens_BL.shape).flatten(), dtype)
        x_ND = self.embedding(tokens_N) * math.sqrt(self.config.d_model)
        return self.dropout(x_ND + F.embedding(position_N, self._positions(n_positions)))

    def _positions(self, n_positions: int) -> Tensor:
        if self.positions is not None:
            if n_positions > self.config.max_positions:
                raise ValueError(
                    f"a sentence has {n_positions} tokens, but the learned positions end at {self.config.max_positions}"
                )
            return self.positions.weight
        table_LD = self._sinusoids_LD
        if n_positions > len(table_LD):
            table_LD = sinusoids(2 * n_positions, self.config.d_model).to(table_LD)
            self._sinusoids_LD = table_LD  # returned from the local name: another thread may store a shorter table
        return table_LD

    def encode(self, source_BS: Tensor) -> Memory:
        """Encodes token ids, padded with PAD_ID; the bias is None if there is known to be no padding."""
        layout = Layout(*source_BS.shape)
        x_ND = self.embed(source_BS)
        padding_B11S = self._bias((source_BS == PAD_ID)[:, None, None])
        for layer in self.encoder:
            x_ND = layer(x_ND, layout, padding_B11S)
        return Memory(x_ND, layout, padding_B11S)

    def _bias(self, hidden: Tensor) -> Tensor | None:
        """Returns -inf where `hidden` is True, 0 elsewhere, in the type of the weights; None if it is nowhere True."""
        # On a GPU, asking would make the host wait.
        if hidden.device.type == "cpu" and not bool(hidden.any()):
            return None
        zeros = torch.zeros(hidden.shape, dtype=self.embedding.weight.dtype, device=hidden.device)
        return zeros.masked_fill_(hidden, -math.inf)

    def decode(self, inputs_BT: Tensor, memory: Memory) -> Tensor:
        """Runs the decoder on the target shifted right, BEGIN_ID first: hidden_BTD, before the pre-softmax projection.

        Target padding is at the end of a sentence, so the causal mask alone hides it from every real position.
        """
        layout = Layout(*inputs_BT.shape)
        later_TT = torch.ones(layout.length, layout.length, dtype=torch.bool, device=inputs_BT.device).triu(1)
        causal_TT = self._bias(later_TT)
        x_ND = self.embed(inputs_BT)
        for layer in self.decoder:
            x_ND = layer(x_ND, layout, causal_TT, memory)
        return layout.by_sentence(x_ND)

    def forward(self, source_BS: Tensor, inputs_BT: Tensor) -> Tensor:
        """Encodes and decodes: hidden_BTD, from which `logits` computes the scores of the next token."""
        return self.decode(inputs_BT, self.encode(source_BS))

    def logits(self, hidden: Tensor) -> Tensor:
        """Projects hidden (..., D) to logits (..., V) by the transposed embedding (§3.4)."""
        if self.projection is not None:
            logits_NV = self.projection(hidden.flatten(0, -2))[:, : self.config.vocabulary_size]
            return cast("Tensor", logits_NV.unflatten(0, hidden.shape[:-1]))
        return F.linear(hidden, self.embedding.weight)
