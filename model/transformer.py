"""The Transformer (paper §3): encoder, decoder, shared embedding.

Post-norm as printed: every sub-layer is LayerNorm(x + Dropout(Sublayer(x))) (§3.1, §5.4).

Shapes: B batch, S source length, T target length, D = d_model, V vocabulary; N the rows of a batch, one
per position (`model.batch`). A bias is -inf where a query must not look and 0 elsewhere.
"""

import math
from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from model.attention import CrossAttention, SelfAttention
from model.banded import NeighbourhoodAttention
from model.batch import Memory, Rows, Sentences
from model.cache import LayerCache
from model.config import PAD_ID, TransformerConfig
from model.dropout import Dropout
from model.positions import sinusoids

MIN_CUDA_IDS = 3073
"""Fewer ids than this are looked up along with others (`_look_up`)."""


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
        self.attention = NeighbourhoodAttention(*sizes, window, dropout) if window else SelfAttention(*sizes, dropout)
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_ND: Tensor, sentences: Sentences) -> Tensor:
        """x_ND -> x_ND."""
        x_ND = self.attention_norm(x_ND + self.dropout(self.attention(x_ND, sentences)))
        return self.feed_forward_norm(x_ND + self.dropout(self.feed_forward(x_ND)))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output and feed-forward, each with residual and norm (§3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        sizes = (config.d_model, config.n_heads, config.d_k, config.d_v)
        self.self_attention = SelfAttention(*sizes, config.attention_dropout)
        self.self_attention_norm = nn.LayerNorm(config.d_model)
        self.cross_attention = CrossAttention(*sizes, config.attention_dropout)
        self.cross_attention_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_ND: Tensor, sentences: Sentences, memory: Memory, cache: LayerCache | None = None) -> Tensor:
        """x_ND -> x_ND; `sentences` hides later positions, and `memory` is the encoder's output.

        With a cache, the rows are those of the next position alone (`model.incremental`).
        """
        x_ND = self.self_attention_norm(x_ND + self.dropout(self.self_attention(x_ND, sentences, cache)))
        x_ND = self.cross_attention_norm(x_ND + self.dropout(self.cross_attention(x_ND, sentences, memory, cache)))
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
        self.positions: nn.Embedding | None = None
        if config.positions == "learned":
            self.positions = nn.Embedding(config.max_positions, config.d_model)
            # One table for both stacks, of rms d_model^-0.5 where sinusoids have 0.71: the paper says neither (§3.5).
            nn.init.normal_(self.positions.weight, std=config.d_model**-0.5)
        self._sinusoids_LD: Tensor
        self.register_buffer("_sinusoids_LD", sinusoids(256, config.d_model), persistent=False)

    def embed(self, tokens_N: Tensor, positions_N: Tensor, n_positions: int) -> Tensor:
        """Adds positions to the embeddings times √d_model and applies dropout (§3.4, §3.5, §5.4): x_ND.

        All positions are less than `n_positions`. Raises ValueError if that is more than there are learned ones.
        """
        x_ND = _look_up(self.embedding.weight, tokens_N) * math.sqrt(self.config.d_model)
        return self.dropout(x_ND + _look_up(self._positions(n_positions), positions_N))

    def reserve_positions(self, n_positions: int) -> None:
        """Computes the sinusoids of sentences of up to `n_positions` tokens, for which later calls then only read them.

        Longer ones replace the table by one of another shape, for which compiled code is compiled again.
        """
        if self.positions is None:
            self._positions(n_positions)

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

    def encode(self, source: Rows) -> Memory:
        """Encodes sentences."""
        x_ND = self.embed(source.tokens_N, source.positions_N, source.n_positions)
        for layer in self.encoder:
            x_ND = layer(x_ND, source.sentences)
        return Memory(x_ND, source.sentences)

    def decode(self, inputs: Rows, memory: Memory) -> Tensor:
        """Runs the decoder on the targets shifted right: hidden_ND, before the pre-softmax projection."""
        x_ND = self.embed(inputs.tokens_N, inputs.positions_N, inputs.n_positions)
        sentences = inputs.sentences.looking_back(x_ND)
        for layer in self.decoder:
            x_ND = layer(x_ND, sentences, memory)
        return x_ND

    def forward(self, source: Rows, inputs: Rows) -> Tensor:
        """Encodes and decodes: hidden_ND, from which `logits` computes the scores of the next token."""
        return self.decode(inputs, self.encode(source))

    def logits(self, hidden: Tensor) -> Tensor:
        """Projects hidden (..., D) to logits (..., V) by the transposed embedding (§3.4)."""
        return F.linear(hidden, self.embedding.weight)


def _look_up(table_XD: Tensor, ids_N: Tensor) -> Tensor:
    """Looks up rows of a table that may be trained: x_ND."""
    # For few indices, CUDA's kernel of the gradient has a race (github.com/pytorch/pytorch issues 187687, 199569).
    missing = MIN_CUDA_IDS - len(ids_N) if ids_N.device.type == "cuda" and table_XD.requires_grad else 0
    if missing <= 0:
        return F.embedding(ids_N, table_XD)
    return F.embedding(F.pad(ids_N, (0, missing), value=PAD_ID), table_XD)[: len(ids_N)]
