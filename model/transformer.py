"""The Transformer (paper §3): encoder, decoder, shared embedding.

Post-norm as printed: every sub-layer is LayerNorm(x + Dropout(Sublayer(x))) (§3.1, §5.4).

Shapes: B batch, S source length, T target length, D = d_model, V vocabulary; N rows: the B·S or B·T
positions of a batch, sentence after sentence, and whatever follows them (`model.rows`).
Padding masks are True where padding; attention masks are True where a query may not look.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.attention import MultiHeadAttention
from model.config import PAD_ID, TransformerConfig
from model.dropout import Dropout
from model.positions import sinusoids
from model.rows import rows_for


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
    """Self-attention and feed-forward, each with its residual and norm (§3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config.d_model, config.n_heads, config.d_k, config.d_v)
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_ND: Tensor, batch: int, length: int, mask_B11S: Tensor | None) -> Tensor:
        """x_ND -> x_ND; `mask_B11S` is True at padding, None where the batch has none."""
        attended_ND = self.attention(x_ND, x_ND, batch, length, length, mask_B11S)
        x_ND = self.attention_norm(x_ND + self.dropout(attended_ND))
        return self.feed_forward_norm(x_ND + self.dropout(self.feed_forward(x_ND)))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, feed-forward (§3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.n_heads, config.d_k, config.d_v)
        self.self_attention_norm = nn.LayerNorm(config.d_model)
        self.cross_attention = MultiHeadAttention(config.d_model, config.n_heads, config.d_k, config.d_v)
        self.cross_attention_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x_ND: Tensor,
        memory_ND: Tensor,
        batch: int,
        length: int,
        memory_length: int,
        causal_TT: Tensor,
        mask_B11S: Tensor | None,
    ) -> Tensor:
        """x_ND -> x_ND."""
        attended_ND = self.self_attention(x_ND, x_ND, batch, length, length, causal_TT)
        x_ND = self.self_attention_norm(x_ND + self.dropout(attended_ND))
        attended_ND = self.cross_attention(x_ND, memory_ND, batch, length, memory_length, mask_B11S)
        x_ND = self.cross_attention_norm(x_ND + self.dropout(attended_ND))
        return self.feed_forward_norm(x_ND + self.dropout(self.feed_forward(x_ND)))

    def step(
        self, x_ND: Tensor, batch: int, width: int, cache: "LayerCache", hidden_B1WN: Tensor, mask_B11S: Tensor | None
    ) -> Tensor:
        """One target position of `width` hypotheses a sentence, added to `cache`: x_ND -> x_ND. No dropout."""
        attention, n_rows = self.self_attention, x_ND.shape[0]
        queries = attention.queries(x_ND, batch, width)
        keys_values = cache.append(*attention.keys_values(x_ND, batch, width))
        x_ND = self.self_attention_norm(x_ND + attention.attend(queries, *keys_values, hidden_B1WN, n_rows))
        attention = self.cross_attention
        queries = attention.queries(x_ND, batch, width)
        memory = cache.memory_k_BHSK, cache.memory_v_BHSV
        x_ND = self.cross_attention_norm(x_ND + attention.attend(queries, *memory, mask_B11S, n_rows))
        return self.feed_forward_norm(x_ND + self.feed_forward(x_ND))


@dataclass
class LayerCache:
    """Keys and values of one decoder layer: of the N tokens decoded so far, and of the encoder's output."""

    k_BHNK: Tensor
    v_BHNV: Tensor
    memory_k_BHSK: Tensor
    memory_v_BHSV: Tensor

    def append(self, k_BHWK: Tensor, v_BHWV: Tensor) -> tuple[Tensor, Tensor]:
        """Adds W tokens and returns the keys and values of all."""
        self.k_BHNK = torch.cat((self.k_BHNK, k_BHWK), dim=2)
        self.v_BHNV = torch.cat((self.v_BHNV, v_BHWV), dim=2)
        return self.k_BHNK, self.v_BHNV

    def keep(self, sentences: Tensor) -> None:
        """Drops all but these sentences."""
        self.k_BHNK, self.v_BHNV = self.k_BHNK[sentences], self.v_BHNV[sentences]
        self.memory_k_BHSK, self.memory_v_BHSV = self.memory_k_BHSK[sentences], self.memory_v_BHSV[sentences]


@dataclass
class DecoderCache:
    """What decoding one more position needs, for B sentences with W hypotheses each.

    The hypotheses of a sentence form a tree. Keys and values of its N tokens are stored once, in the order in which
    they were decoded, and never moved: a hypothesis looks at all of them but those that are hidden from it because they
    are not its own. So reordering hypotheses reorders a few bits, and W hypotheses are W queries of one matrix product.
    """

    layers: list[LayerCache]
    mask_B11S: Tensor | None
    hidden_BWN: Tensor
    """True where a token of the tree is not on the hypothesis's path."""
    length: int = 0

    def branch(self, parents_BW: Tensor) -> None:
        """Replaces the hypotheses of each sentence by continuations of `parents_BW` (long); W may change."""
        n_tokens = self.hidden_BWN.shape[2]
        self.hidden_BWN = self.hidden_BWN.gather(1, parents_BW[:, :, None].expand(-1, -1, n_tokens))

    def keep(self, sentences: Tensor) -> None:
        """Drops all but these sentences (long, (B',)), in that order."""
        self.hidden_BWN = self.hidden_BWN[sentences]
        if self.mask_B11S is not None:
            self.mask_B11S = self.mask_B11S[sentences]
        for layer in self.layers:
            layer.keep(sentences)


class Transformer(nn.Module):
    """The encoder-decoder; one matrix is source embedding, target embedding and pre-softmax projection (§3.4)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)  # so that √d_model times it has unit variance
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_layers))
        decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.n_layers))
        self.decoder = cast("Sequence[DecoderLayer]", decoder)
        self.dropout = Dropout(config.dropout)
        self.positions: nn.Embedding | None = None
        if config.positions == "learned":
            self.positions = nn.Embedding(config.max_positions, config.d_model)
            nn.init.normal_(self.positions.weight, std=config.d_model**-0.5)
        self._sinusoids_LD: Tensor
        self.register_buffer("_sinusoids_LD", sinusoids(256, config.d_model), persistent=False)

    def _embed(self, tokens_BL: Tensor, at: int | None = None) -> Tensor:
        """Embeddings times √d_model plus positions, with dropout (§3.4, §3.5, §5.4): x_ND.

        Positions count along a row of `tokens_BL`, from 0; or all are `at`.
        """
        n_tokens, device = tokens_BL.numel(), tokens_BL.device
        n_positions = tokens_BL.shape[1] if at is None else at + 1
        position_L = torch.arange(at or 0, n_positions, device=device)
        missing = rows_for(n_tokens, device, self.embedding.weight.dtype) - n_tokens
        tokens_N = F.pad(tokens_BL.flatten(), (0, missing), value=PAD_ID)
        position_N = F.pad(position_L.expand(tokens_BL.shape).flatten(), (0, missing))
        x_ND = self.embedding(tokens_N) * math.sqrt(self.config.d_model)
        return self.dropout(x_ND + F.embedding(position_N, self._positions(n_positions)))

    def _positions(self, n_positions: int) -> Tensor:
        if self.positions is not None:
            if n_positions > self.config.max_positions:
                raise ValueError(
                    f"a sentence of {n_positions} tokens, but the learned positions end at {self.config.max_positions}"
                )
            return self.positions.weight
        if n_positions > self._sinusoids_LD.shape[0]:
            longer_LD = sinusoids(2 * n_positions, self.config.d_model)
            self._sinusoids_LD = longer_LD.to(self._sinusoids_LD)
        return self._sinusoids_LD

    def encode(self, source_BS: Tensor) -> tuple[Tensor, Tensor | None]:
        """Token ids, PAD_ID where padding -> memory_ND and its mask_B11S (None where nothing is known to be padded)."""
        batch, length = source_BS.shape
        padding_B11S = (source_BS == PAD_ID)[:, None, None]
        # Asking whether there is padding would make the host wait for a GPU.
        mask_B11S = padding_B11S if padding_B11S.device.type != "cpu" or bool(padding_B11S.any()) else None
        x_ND = self._embed(source_BS)
        for layer in self.encoder:
            x_ND = layer(x_ND, batch, length, mask_B11S)
        return x_ND, mask_B11S

    def decode(self, inputs_BT: Tensor, memory_ND: Tensor, memory_length: int, mask_B11S: Tensor | None) -> Tensor:
        """Decoder inputs (BEGIN_ID, then the target shifted right) -> hidden_BTD, before the pre-softmax projection.

        Target padding stands at the end, so the causal mask alone hides it from every real position.
        """
        batch, length = inputs_BT.shape
        causal_TT = torch.ones(length, length, dtype=torch.bool, device=inputs_BT.device).triu(1)
        x_ND = self._embed(inputs_BT)
        for layer in self.decoder:
            x_ND = layer(x_ND, memory_ND, batch, length, memory_length, causal_TT, mask_B11S)
        return x_ND[: batch * length].view(batch, length, -1)

    def forward(self, source_BS: Tensor, inputs_BT: Tensor) -> Tensor:
        """-> hidden_BTD; `logits` of it gives the scores of the next token."""
        memory_ND, mask_B11S = self.encode(source_BS)
        return self.decode(inputs_BT, memory_ND, source_BS.shape[1], mask_B11S)

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden (..., D) -> logits (..., V), by the transposed embedding (§3.4)."""
        return F.linear(hidden, self.embedding.weight)

    def start(self, source_BS: Tensor) -> DecoderCache:
        """Encodes sentences and readies the cache for `step`, with one hypothesis a sentence."""
        memory_ND, mask_B11S = self.encode(source_BS)
        config, (batch, length) = self.config, source_BS.shape
        layers = [
            LayerCache(
                memory_ND.new_empty(batch, config.n_heads, 0, config.d_k),
                memory_ND.new_empty(batch, config.n_heads, 0, config.d_v),
                *layer.cross_attention.keys_values(memory_ND, batch, length),
            )
            for layer in self.decoder
        ]
        return DecoderCache(layers, mask_B11S, torch.empty(batch, 1, 0, dtype=torch.bool, device=source_BS.device))

    def step(self, tokens_BW: Tensor, cache: DecoderCache) -> Tensor:
        """Decodes one position of each hypothesis, in evaluation mode: logits_BWV of the next token."""
        batch, width = tokens_BW.shape
        own_WW = torch.eye(width, dtype=torch.bool, device=tokens_BW.device)
        cache.hidden_BWN = torch.cat((cache.hidden_BWN, ~own_WW.expand(batch, -1, -1)), dim=2)
        hidden_B1WN = cache.hidden_BWN[:, None]
        x_ND = self._embed(tokens_BW, at=cache.length)
        for layer, layer_cache in zip(self.decoder, cache.layers, strict=True):
            x_ND = layer.step(x_ND, batch, width, layer_cache, hidden_B1WN, cache.mask_B11S)
        cache.length += 1
        return self.logits(x_ND)[: batch * width].view(batch, width, -1)
