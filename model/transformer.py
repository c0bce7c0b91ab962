"""The Transformer (paper §3): encoder, decoder, shared embedding.

Post-norm as printed: every sub-layer is LayerNorm(x + Dropout(Sublayer(x))) (§3.1, §5.4).

Shapes: B batch, S source length, T target length, D = d_model, V vocabulary.
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
        """x_BLD -> x_BLD."""
        return self.w_2(F.relu(self.w_1(x)))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with its residual and norm (§3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config.d_model, config.n_heads, config.d_k, config.d_v)
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_BSD: Tensor, mask_B11S: Tensor | None) -> Tensor:
        """x_BSD -> x_BSD; `mask_B11S` is True at padding, None where the batch has none."""
        x_BSD = self.attention_norm(x_BSD + self.dropout(self.attention(x_BSD, x_BSD, mask_B11S)))
        return self.feed_forward_norm(x_BSD + self.dropout(self.feed_forward(x_BSD)))


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

    def forward(self, x_BTD: Tensor, memory_BSD: Tensor, causal_TT: Tensor, mask_B11S: Tensor | None) -> Tensor:
        """x_BTD -> x_BTD."""
        x_BTD = self.self_attention_norm(x_BTD + self.dropout(self.self_attention(x_BTD, x_BTD, causal_TT)))
        x_BTD = self.cross_attention_norm(x_BTD + self.dropout(self.cross_attention(x_BTD, memory_BSD, mask_B11S)))
        return self.feed_forward_norm(x_BTD + self.dropout(self.feed_forward(x_BTD)))

    def step(self, x_BWD: Tensor, cache: "LayerCache", hidden_B1WN: Tensor, mask_B11S: Tensor | None) -> Tensor:
        """One target position of W hypotheses a sentence, added to `cache`: x_BWD -> x_BWD. No dropout."""
        attention = self.self_attention
        keys_values = cache.append(*attention.keys_values(x_BWD))
        x_BWD = self.self_attention_norm(x_BWD + attention.attend(attention.queries(x_BWD), *keys_values, hidden_B1WN))
        attention = self.cross_attention
        memory = cache.memory_k_BHSK, cache.memory_v_BHSV
        x_BWD = self.cross_attention_norm(x_BWD + attention.attend(attention.queries(x_BWD), *memory, mask_B11S))
        return self.feed_forward_norm(x_BWD + self.feed_forward(x_BWD))


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

    def _embed(self, tokens_BL: Tensor, first: int = 0) -> Tensor:
        """Embeddings times √d_model plus positions `first` onwards, with dropout (§3.4, §3.5, §5.4): x_BLD."""
        last = first + tokens_BL.shape[1]
        x_BLD = self.embedding(tokens_BL) * math.sqrt(self.config.d_model)
        return self.dropout(x_BLD + self._positions(last)[first:last].to(x_BLD.dtype))

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
        """Token ids, PAD_ID where padding -> memory_BSD and its mask_B11S (None where nothing is padded)."""
        padding_BS = source_BS == PAD_ID
        mask_B11S = padding_BS[:, None, None, :] if bool(padding_BS.any()) else None
        x_BSD = self._embed(source_BS)
        for layer in self.encoder:
            x_BSD = layer(x_BSD, mask_B11S)
        return x_BSD, mask_B11S

    def decode(self, inputs_BT: Tensor, memory_BSD: Tensor, mask_B11S: Tensor | None) -> Tensor:
        """Decoder inputs (BEGIN_ID, then the target shifted right) -> hidden_BTD, before the pre-softmax projection.

        Target padding stands at the end, so the causal mask alone hides it from every real position.
        """
        length = inputs_BT.shape[1]
        causal_TT = torch.ones(length, length, dtype=torch.bool, device=inputs_BT.device).triu(1)
        x_BTD = self._embed(inputs_BT)
        for layer in self.decoder:
            x_BTD = layer(x_BTD, memory_BSD, causal_TT, mask_B11S)
        return x_BTD

    def forward(self, source_BS: Tensor, inputs_BT: Tensor) -> Tensor:
        """-> hidden_BTD; `logits` of it gives the scores of the next token."""
        return self.decode(inputs_BT, *self.encode(source_BS))

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden (..., D) -> logits (..., V), by the transposed embedding (§3.4)."""
        return F.linear(hidden, self.embedding.weight)

    def start(self, source_BS: Tensor) -> DecoderCache:
        """Encodes sentences and readies the cache for `step`, with one hypothesis a sentence."""
        memory_BSD, mask_B11S = self.encode(source_BS)
        config, batch = self.config, source_BS.shape[0]
        layers = [
            LayerCache(
                memory_BSD.new_empty(batch, config.n_heads, 0, config.d_k),
                memory_BSD.new_empty(batch, config.n_heads, 0, config.d_v),
                *layer.cross_attention.keys_values(memory_BSD),
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
        x_BWD = self._embed(tokens_BW.reshape(-1, 1), first=cache.length).view(batch, width, -1)
        for layer, layer_cache in zip(self.decoder, cache.layers, strict=True):
            x_BWD = layer.step(x_BWD, layer_cache, hidden_B1WN, cache.mask_B11S)
        cache.length += 1
        return self.logits(x_BWD)
