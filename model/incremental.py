"""The decoder, run one position at a time as beam search needs it, computing every key and value once.

    decoder = IncrementalDecoder(model)          # copies the weights; use it for many batches
    cache = decoder.start(source_BS)
    logits_NV = decoder.logits(decoder.step(tokens_BW, cache).flatten(0, 1))

The hypotheses of a sentence form a tree. The keys and values of its tokens are stored once, in decoding order. A
hypothesis attends to the tokens on its path; a bias of -inf hides the others. Reordering hypotheses therefore reorders
a few numbers, and W hypotheses are W queries of one product. Once in a while the tokens that are on no path are dropped
(`DecoderCache.prune`); only the order in which attention sums its terms, so the last bits, depends on it.

Four choices make it fast on a CPU, measured for 256 rows (64 sentences of 4 hypotheses, d_model 192) on one AVX-512
core: keys are stored with positions innermost (a product with them takes half the time), masks are added instead of
filled in (a tenth), queries, keys and values are one product, and the place of a finished sentence is taken by one of
the last sentences, so that the others need not move.

Shapes: B sentences, W hypotheses of each, S source length, M tokens of a sentence's tree, C room for them; D = d_model,
H heads, K = d_k, V = d_v, and V the vocabulary where it is the last of logits; N the rows of a batch, one per position
or hypothesis (`model.on_cpu`); X columns of any meaning.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.attention import MultiHeadAttention
from model.on_cpu import filled, softmax
from model.rows import Grid, Memory, grid
from model.transformer import DecoderLayer, Transformer

FIRST_ROOM = 16
"""Smallest capacity of a cache, in tokens; it grows to twice the tokens it must hold."""
FIRST_PRUNED_TOKENS = 256
"""Smaller trees are not pruned: at 64, translations of 13 tokens with a beam of 4 took as long as without pruning."""
PRUNING_GROWTH = 1.5
"""A tree is pruned when it has grown to this many times the tokens that were on a path when it was pruned last."""
LOGITS_MULTIPLE = 64
"""Rows of logits are padded with -inf to a multiple of this."""


@dataclass
class LayerCache:
    """The keys and values of one decoder layer."""

    k_BHKC: Tensor
    v_BHCV: Tensor
    memory_k_BHKS: Tensor
    """Keys of the encoder's output."""
    memory_v_BHSV: Tensor

    def grow(self, room: int) -> None:
        """Makes room for `room` tokens of each sentence's tree."""
        n_tokens = self.v_BHCV.shape[2]
        k_BHKC, v_BHCV = self.k_BHKC, self.v_BHCV
        self.k_BHKC = k_BHKC.new_empty(*k_BHKC.shape[:3], room)
        self.v_BHCV = v_BHCV.new_empty(*v_BHCV.shape[:2], room, v_BHCV.shape[3])
        self.k_BHKC[..., :n_tokens], self.v_BHCV[:, :, :n_tokens] = k_BHKC, v_BHCV

    def select(self, tokens_BX: Tensor) -> None:
        """Keeps only the tokens `tokens_BX` of each sentence's tree, in the order given."""
        n_tokens, (batch, n_heads, room, d_v) = tokens_BX.shape[1], self.v_BHCV.shape
        columns_BHKX = tokens_BX[:, None, None].expand(-1, n_heads, self.k_BHKC.shape[2], -1)
        self.k_BHKC[..., :n_tokens] = self.k_BHKC.gather(3, columns_BHKX)
        # Values are whole rows, and copying rows takes a third of the time of `gather`.
        first_BH1 = torch.arange(0, batch * n_heads * room, room, device=tokens_BX.device).view(batch, n_heads, 1)
        rows_N = (first_BH1 + tokens_BX[:, None]).flatten()
        self.v_BHCV[:, :, :n_tokens] = (
            self.v_BHCV.flatten(0, 2).index_select(0, rows_N).view(batch, n_heads, n_tokens, d_v)
        )

    def move(self, sources: Tensor, places: Tensor, n_sentences: int) -> None:
        """Copies the sentences `sources` to `places`, then keeps the first `n_sentences`."""
        for name, kept in vars(self).items():
            kept[places] = kept[sources]
            setattr(self, name, kept[:n_sentences])


@dataclass
class DecoderCache:
    """Everything needed to decode one more position of B sentences with W hypotheses each."""

    layers: list[LayerCache]
    memory_bias_B11S: Tensor | None
    """-inf at padding, 0 elsewhere; None if there is none."""
    bias_BWM: Tensor
    """-inf at tokens of the tree that are not on the hypothesis's path, 0 elsewhere."""
    length: int = 0
    """Number of positions decoded."""
    prune_at_tokens: int = 0
    """Size of the tree at which `open_position` prunes it next, FIRST_PRUNED_TOKENS or more."""

    def branch(self, parents_BW: Tensor) -> None:
        """Replaces each sentence's hypotheses with continuations of `parents_BW` (long); W may change."""
        n_tokens = self.bias_BWM.shape[2]
        self.bias_BWM = self.bias_BWM.gather(1, parents_BW[:, :, None].expand(-1, -1, n_tokens))

    def keep(self, sentences: Tensor) -> None:
        """Keeps only `sentences` (long, (B',)), in the order given by `compacted`."""
        places = (sentences != torch.arange(len(sentences), device=sentences.device)).nonzero().squeeze(1)
        for layer in self.layers:
            layer.move(sentences[places], places, len(sentences))
        self.bias_BWM = self.bias_BWM[sentences]
        if self.memory_bias_B11S is not None:
            self.memory_bias_B11S = self.memory_bias_B11S[sentences]

    def prune(self) -> None:
        """Drops the tokens that are on no hypothesis's path.

        Each sentence keeps as many tokens as the one that needs most; a bias of -inf hides what it keeps beyond need.
        """
        live_BM = (self.bias_BWM == 0).any(dim=1)
        n_live = int(live_BM.sum(dim=1).max())
        if n_live < live_BM.shape[1]:
            tokens_BX = (~live_BM).sort(dim=1, stable=True).indices[:, :n_live]
            self.bias_BWM = self.bias_BWM.gather(2, tokens_BX[:, None].expand(-1, self.bias_BWM.shape[1], -1))
            for layer in self.layers:
                layer.select(tokens_BX)
        self.prune_at_tokens = int(PRUNING_GROWTH * n_live)

    def open_position(self, width: int) -> None:
        """Adds a position to the tree, in which each of `width` hypotheses sees only its own token."""
        if self.bias_BWM.shape[2] >= max(self.prune_at_tokens, FIRST_PRUNED_TOKENS):
            self.prune()
        batch, n_tokens = len(self.bias_BWM), self.bias_BWM.shape[2] + width
        own_WW = self.bias_BWM.new_full((width, width), -math.inf).fill_diagonal_(0)
        self.bias_BWM = torch.cat((self.bias_BWM, own_WW.expand(batch, -1, -1)), dim=2)
        if n_tokens > self.layers[0].v_BHCV.shape[2]:
            for layer in self.layers:
                layer.grow(max(2 * n_tokens, FIRST_ROOM))


def compacted(open_B: Tensor) -> Tensor:
    """Orders the open sentences for `DecoderCache.keep`: the last ones take the places of those that are closed.

    `open_B` is True for open sentences; returns (B',), long.
    """
    sentences = open_B.nonzero().squeeze(1)
    order = torch.arange(len(sentences), device=open_B.device)
    order[~open_B[: len(order)]] = sentences[sentences >= len(order)]
    return order


def attention_dtype(x: Tensor) -> torch.dtype:
    """Returns the dtype for cached keys and values: x's own, but float32 instead of bfloat16 on a CPU.

    oneDNN compiles a bfloat16 product for every shape it meets, and here every position has its own shape: each takes
    5 ms on one AVX-512 core, where the product itself takes 0.4 to 0.9.
    """
    return torch.promote_types(x.dtype, torch.float32) if x.device.type == "cpu" else x.dtype


def _transposed(linear: nn.Linear) -> Tensor:
    """Returns a copy of a layer's weights as its product reads them: w_DX."""
    return linear.weight.t().contiguous()


class _Attention:
    """One attention, without the products that make queries, keys and values."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        self.n_heads, self.d_k, self.d_v = attention.n_heads, attention.d_k, attention.d_v
        self.module = attention
        self.w_o_XD = _transposed(attention.w_o)

    def attend(self, x_ND: Tensor, q_BHWK: Tensor, k_BHKM: Tensor, v_BHMV: Tensor, bias_B1WM: Tensor | None) -> Tensor:
        """Attends, and adds the result to the residual `x_ND` in place."""
        scores_BHWM = q_BHWK.to(k_BHKM.dtype) @ k_BHKM
        if bias_B1WM is not None:
            scores_BHWM += bias_B1WM
        weights_BHWM = softmax(scores_BHWM)
        if self.module.on_weights is not None:
            weights_BHWM = self.module.on_weights(weights_BHWM)
        x_BHWV = weights_BHWM @ v_BHMV
        x_NX = x_BHWV.transpose(1, 2).reshape(-1, self.n_heads * self.d_v).to(x_ND.dtype)
        return x_ND.addmm_(filled(x_NX), self.w_o_XD)


class _Layer:
    """A decoder layer with its weights laid out for `step`, and 1 / √d_k folded into those that make queries."""

    def __init__(self, layer: DecoderLayer) -> None:
        self.self_attention, self.cross = _Attention(layer.self_attention), _Attention(layer.cross_attention)
        self_attention, cross, feed_forward = layer.self_attention, layer.cross_attention, layer.feed_forward
        self.w_qkv_DX, self.sizes = _transposed(self_attention.w_qkv), self_attention.sizes
        self.w_qkv_DX[:, : self.sizes[0]] /= math.sqrt(self_attention.d_k)
        self.w_q_DX = _transposed(cross.w_q) / math.sqrt(cross.d_k)
        self.cross_keys_values = cross.keys_values
        self.norms: tuple[nn.LayerNorm, ...] = (
            layer.self_attention_norm,
            layer.cross_attention_norm,
            layer.feed_forward_norm,
        )
        self.w_1_DX, self.b_1_X = _transposed(feed_forward.w_1), feed_forward.w_1.bias
        self.w_2_XD, self.b_2_D = _transposed(feed_forward.w_2), feed_forward.w_2.bias

    def start(self, memory: Memory) -> LayerCache:
        """Returns a cache that holds only the keys and values of the encoder's output."""
        self_attention, dtype, sentences = self.self_attention, attention_dtype(memory.x_ND), memory.sentences
        assert isinstance(sentences, Grid)
        batch = sentences.batch
        k_BHSK, v_BHSV = (
            sentences.by_head(x_NX, self.cross.n_heads).to(dtype) for x_NX in self.cross_keys_values(memory.x_ND)
        )
        return LayerCache(
            k_BHSK.new_empty(batch, self_attention.n_heads, self_attention.d_k, 0),
            v_BHSV.new_empty(batch, self_attention.n_heads, 0, self_attention.d_v),
            k_BHSK.transpose(2, 3).contiguous(),
            v_BHSV.contiguous(),
        )

    def step(self, x_ND: Tensor, hypotheses: Grid, cache: LayerCache, state: DecoderCache) -> Tensor:
        """Decodes one position of every hypothesis and adds its keys and values to `cache`: x_ND -> x_ND."""
        self_attention, cross, n_tokens = self.self_attention, self.cross, state.bias_BWM.shape[2]
        parts = (x_ND @ self.w_qkv_DX).split(self.sizes, dim=1)
        q_BHWK, k_BHWK, v_BHWV = (hypotheses.by_head(x_NX, self_attention.n_heads) for x_NX in parts)
        added = slice(n_tokens - hypotheses.length, n_tokens)
        cache.k_BHKC[:, :, :, added] = k_BHWK.transpose(2, 3)
        cache.v_BHCV[:, :, added] = v_BHWV
        keys, values = cache.k_BHKC[:, :, :, :n_tokens], cache.v_BHCV[:, :, :n_tokens]
        x_ND = self_attention.attend(x_ND, q_BHWK, keys, values, state.bias_BWM[:, None])
        x_ND = self.norms[0](x_ND)
        queries = hypotheses.by_head(x_ND @ self.w_q_DX, cross.n_heads)
        x_ND = cross.attend(x_ND, queries, cache.memory_k_BHKS, cache.memory_v_BHSV, state.memory_bias_B11S)
        x_ND = self.norms[1](x_ND)
        hidden_NX = torch.addmm(self.b_1_X, x_ND, self.w_1_DX).relu_()
        return self.norms[2]((x_ND + self.b_2_D).addmm_(hidden_NX, self.w_2_XD))


class IncrementalDecoder:
    """Runs a model's decoder with most of its weights copied into the layout that decoding needs.

    Make a new one when the weights change. The model must be in evaluation mode. Hidden states and logits equal those
    of the model itself (tests/model/test_transformer.py). Threads may share one, each with caches of its own.
    """

    def __init__(self, model: Transformer) -> None:
        with torch.no_grad():
            self.model, self._layers = model, [_Layer(layer) for layer in model.decoder]
            self._w_vocabulary_DV = model.embedding.weight.t().contiguous()

    def start(self, source_BS: Tensor) -> DecoderCache:
        """Encodes sentences and prepares their cache, with one hypothesis per sentence."""
        source = grid(source_BS, self.model.embedding.weight.dtype)
        memory = self.model.encode(source)
        bias_BWM, bias_B11S = memory.x_ND.new_empty(len(source_BS), 1, 0, dtype=attention_dtype(memory.x_ND)), None
        if isinstance(source.sentences, Grid) and source.sentences.bias is not None:
            bias_B11S = source.sentences.bias.to(bias_BWM.dtype)
        layers = [layer.start(memory) for layer in self._layers]
        return DecoderCache(layers, bias_B11S, bias_BWM)

    def step(self, tokens_BW: Tensor, cache: DecoderCache) -> Tensor:
        """Decodes one position of every hypothesis: hidden_BWD, before the projection to the vocabulary."""
        batch, width = tokens_BW.shape
        hypotheses = Grid(batch, width, bias=None)
        cache.open_position(hypotheses.length)
        tokens_N = filled(tokens_BW.flatten(), self.model.embedding.weight.dtype)
        x_ND = self.model.embed(tokens_N, torch.full_like(tokens_N, cache.length), cache.length + 1)
        for layer, layer_cache in zip(self._layers, cache.layers, strict=True):
            x_ND = layer.step(x_ND, hypotheses, layer_cache, cache)
        cache.length += 1
        return hypotheses.by_sentence(x_ND)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """Returns logits_NV of the next token, padded behind the vocabulary with -inf to a multiple of 64 columns."""
        n_rows, vocabulary_size = len(hidden_ND), self.model.config.vocabulary_size
        x_ND = filled(hidden_ND)
        logits_NV = x_ND.new_empty(len(x_ND), -(-vocabulary_size // LOGITS_MULTIPLE) * LOGITS_MULTIPLE)
        torch.mm(x_ND, self._w_vocabulary_DV, out=logits_NV[:, :vocabulary_size])
        logits_NV[:, vocabulary_size:] = -math.inf
        return logits_NV[:n_rows]
