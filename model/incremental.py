"""The decoder one position at a time, as beam search needs it: every key and value is computed once.

    decoder = IncrementalDecoder(model)          # lays the weights out; use it for many batches
    cache = decoder.start(source_BS)
    logits_NV = decoder.logits(decoder.step(tokens_BW, cache).flatten(0, 1))

The hypotheses of a sentence form a tree. Keys and values of its tokens are stored once, in the order in which they were
decoded, and never moved: a hypothesis looks at all of them but those that are not on its path, which a bias of -inf
hides. So reordering hypotheses reorders a few numbers, and W hypotheses are W queries of one product.

What makes it fast on a CPU, each measured for 256 rows (64 sentences of 4 hypotheses, d_model 192) on one AVX-512 core:
keys lie with their positions innermost (a product with them takes half the time), a mask is added and not filled in (a
tenth), queries, keys and values are one product, and a sentence that is done leaves by one of the last taking its place
instead of all moving up.

Shapes: B sentences, W hypotheses of each, S source length, M tokens of a sentence's tree, C room for them; D = d_model,
H heads, K = d_k, V = d_v, and V the vocabulary where it is the last of logits; N the rows of a batch, one per position
or hypothesis (`model.rows`); X columns of any meaning.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.attention import MultiHeadAttention, softmax
from model.rows import Layout, Memory, filled
from model.transformer import DecoderLayer, Transformer

FIRST_ROOM = 16
"""Tokens that a cache has room for at first; it doubles."""
LOGITS_MULTIPLE = 64
"""The rows of logits end in -inf, up to a multiple of this."""


@dataclass
class LayerCache:
    """Keys and values of one decoder layer."""

    k_BHKC: Tensor
    v_BHCV: Tensor
    memory_k_BHKS: Tensor
    """Of the encoder's output."""
    memory_v_BHSV: Tensor

    def grow(self, room: int) -> None:
        """Makes room for so many tokens."""
        n_tokens = self.v_BHCV.shape[2]
        k_BHKC, v_BHCV = self.k_BHKC, self.v_BHCV
        self.k_BHKC = k_BHKC.new_empty(*k_BHKC.shape[:3], room)
        self.v_BHCV = v_BHCV.new_empty(*v_BHCV.shape[:2], room, v_BHCV.shape[3])
        self.k_BHKC[..., :n_tokens], self.v_BHCV[:, :, :n_tokens] = k_BHKC, v_BHCV

    def move(self, sources: Tensor, places: Tensor, n_sentences: int) -> None:
        """Puts the sentences `sources` into `places` and keeps the first `n_sentences`."""
        for name, kept in vars(self).items():
            kept[places] = kept[sources]
            setattr(self, name, kept[:n_sentences])


@dataclass
class DecoderCache:
    """What decoding one more position needs, for B sentences with W hypotheses each."""

    layers: list[LayerCache]
    memory_bias_B11S: Tensor | None
    """-inf at padding, 0 elsewhere; None where there is none."""
    bias_BWM: Tensor
    """-inf where a token of the tree is not on the hypothesis's path, 0 elsewhere."""
    length: int = 0
    """Positions decoded."""

    def branch(self, parents_BW: Tensor) -> None:
        """Replaces the hypotheses of each sentence by continuations of `parents_BW` (long); W may change."""
        n_tokens = self.bias_BWM.shape[2]
        self.bias_BWM = self.bias_BWM.gather(1, parents_BW[:, :, None].expand(-1, -1, n_tokens))

    def keep(self, sentences: Tensor) -> None:
        """Drops all but `sentences` (long, (B',)): the order of `compacted`."""
        places = (sentences != torch.arange(len(sentences), device=sentences.device)).nonzero().squeeze(1)
        for layer in self.layers:
            layer.move(sentences[places], places, len(sentences))
        self.bias_BWM = self.bias_BWM[sentences]
        if self.memory_bias_B11S is not None:
            self.memory_bias_B11S = self.memory_bias_B11S[sentences]

    def open_position(self, width: int) -> None:
        """Opens a new position: each hypothesis sees its own token of it."""
        batch, n_tokens = len(self.bias_BWM), self.bias_BWM.shape[2] + width
        own_WW = self.bias_BWM.new_full((width, width), -math.inf).fill_diagonal_(0)
        self.bias_BWM = torch.cat((self.bias_BWM, own_WW.expand(batch, -1, -1)), dim=2)
        if n_tokens > self.layers[0].v_BHCV.shape[2]:
            for layer in self.layers:
                layer.grow(max(2 * n_tokens, FIRST_ROOM))


def compacted(open_B: Tensor) -> Tensor:
    """The sentences that are open, as `DecoderCache.keep` wants them: the last take the places of those that are not.

    `open_B` is True where open; (B',) long.
    """
    sentences = open_B.nonzero().squeeze(1)
    order = torch.arange(len(sentences), device=open_B.device)
    order[~open_B[: len(order)]] = sentences[sentences >= len(order)]
    return order


def attention_dtype(x: Tensor) -> torch.dtype:
    """In what keys and values are kept and attended to: float32 for bfloat16 on a CPU.

    oneDNN compiles a bfloat16 product for every shape it meets, and here each position has its own (5 ms each on one
    AVX-512 core, where the product itself takes 0.4 to 0.9).
    """
    return torch.promote_types(x.dtype, torch.float32) if x.device.type == "cpu" else x.dtype


class _Attention:
    """Weights of one attention, as (inputs, outputs) matrices; queries come out divided by √d_k."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        self.n_heads, self.d_k, self.d_v = attention.n_heads, attention.d_k, attention.d_v
        self.w_q = attention.w_q.weight.t().contiguous() / math.sqrt(self.d_k)
        self.w_o = attention.w_o.weight.t().contiguous()

    def attend(self, x_ND: Tensor, q_BHWK: Tensor, k_BHKM: Tensor, v_BHMV: Tensor, bias_B1WM: Tensor | None) -> Tensor:
        """Adds what is attended to to the residual `x_ND`."""
        scores_BHWM = q_BHWK.to(k_BHKM.dtype) @ k_BHKM
        if bias_B1WM is not None:
            scores_BHWM += bias_B1WM
        x_BHWV = softmax(scores_BHWM) @ v_BHMV
        x_NX = x_BHWV.transpose(1, 2).reshape(-1, self.n_heads * self.d_v).to(x_ND.dtype)
        return x_ND.addmm_(filled(x_NX), self.w_o)


class _Layer:
    """A decoder layer, its weights laid out for `step`."""

    def __init__(self, layer: DecoderLayer) -> None:
        self.own, self.cross = _Attention(layer.self_attention), _Attention(layer.cross_attention)
        self.w_qkv = torch.cat((self.own.w_q, layer.self_attention.w_kv.weight.t()), dim=1)
        self.cross_keys_values = layer.cross_attention.keys_values
        self.norms: tuple[nn.LayerNorm, ...] = (
            layer.self_attention_norm,
            layer.cross_attention_norm,
            layer.feed_forward_norm,
        )
        feed_forward = layer.feed_forward
        self.w_1, self.b_1 = feed_forward.w_1.weight.t().contiguous(), feed_forward.w_1.bias
        self.w_2, self.b_2 = feed_forward.w_2.weight.t().contiguous(), feed_forward.w_2.bias

    def start(self, memory: Memory) -> LayerCache:
        """The encoder's keys and values, and no others yet."""
        own, dtype, batch = self.own, attention_dtype(memory.x_ND), memory.layout.batch
        k_BHSK, v_BHSV = (x.to(dtype) for x in self.cross_keys_values(memory.x_ND, memory.layout))
        return LayerCache(
            k_BHSK.new_empty(batch, own.n_heads, own.d_k, 0),
            v_BHSV.new_empty(batch, own.n_heads, 0, own.d_v),
            k_BHSK.transpose(2, 3).contiguous(),
            v_BHSV.contiguous(),
        )

    def step(self, x_ND: Tensor, layout: Layout, cache: LayerCache, state: DecoderCache) -> Tensor:
        """One position of each sentence's hypotheses, added to `cache`: x_ND -> x_ND."""
        own, cross, n_tokens = self.own, self.cross, state.bias_BWM.shape[2]
        n_keys = own.n_heads * own.d_k
        q_NX, k_NX, v_NX = (x_ND @ self.w_qkv).split([n_keys, n_keys, own.n_heads * own.d_v], dim=1)
        added = slice(n_tokens - layout.length, n_tokens)
        cache.k_BHKC[:, :, :, added] = layout.by_head(k_NX, own.n_heads).transpose(2, 3)
        cache.v_BHCV[:, :, added] = layout.by_head(v_NX, own.n_heads)
        keys, values = cache.k_BHKC[:, :, :, :n_tokens], cache.v_BHCV[:, :, :n_tokens]
        x_ND = own.attend(x_ND, layout.by_head(q_NX, own.n_heads), keys, values, state.bias_BWM[:, None])
        x_ND = self.norms[0](x_ND)
        queries = layout.by_head(x_ND @ cross.w_q, cross.n_heads)
        x_ND = cross.attend(x_ND, queries, cache.memory_k_BHKS, cache.memory_v_BHSV, state.memory_bias_B11S)
        x_ND = self.norms[1](x_ND)
        hidden_NX = torch.addmm(self.b_1, x_ND, self.w_1).relu_()
        return self.norms[2]((x_ND + self.b_2).addmm_(hidden_NX, self.w_2))


class IncrementalDecoder:
    """A model's decoder, most of its weights copied into the layout that decoding wants.

    When the weights change, make a new one. The model must be in evaluation mode. `step` and `logits` give those of
    `Transformer.forward` (tests). Several threads may use one, each with caches of its own.
    """

    def __init__(self, model: Transformer) -> None:
        with torch.no_grad():
            self.model, self._layers = model, [_Layer(layer) for layer in model.decoder]
            self._w_vocabulary = model.embedding.weight.t().contiguous()

    def start(self, source_BS: Tensor) -> DecoderCache:
        """Encodes sentences and readies the cache, with one hypothesis a sentence."""
        memory = self.model.encode(source_BS)
        bias_BWM, bias_B11S = memory.x_ND.new_empty(len(source_BS), 1, 0, dtype=attention_dtype(memory.x_ND)), None
        if memory.mask is not None:
            bias_B11S = bias_BWM.new_zeros(memory.mask.shape).masked_fill_(memory.mask, -math.inf)
        layers = [layer.start(memory) for layer in self._layers]
        return DecoderCache(layers, bias_B11S, bias_BWM)

    def step(self, tokens_BW: Tensor, cache: DecoderCache) -> Tensor:
        """Decodes one position of each hypothesis: hidden_BWD, before the projection to the vocabulary."""
        layout = Layout(*tokens_BW.shape)
        cache.open_position(layout.length)
        x_ND = self.model.embed(tokens_BW, at=cache.length)
        for layer, layer_cache in zip(self._layers, cache.layers, strict=True):
            x_ND = layer.step(x_ND, layout, layer_cache, cache)
        cache.length += 1
        return layout.by_sentence(x_ND)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """logits_NV of the next token; behind the vocabulary follow columns of -inf up to a multiple of 64."""
        n_rows, vocabulary_size = len(hidden_ND), self._w_vocabulary.shape[1]
        x_ND = filled(hidden_ND)
        logits_NV = x_ND.new_empty(len(x_ND), -(-vocabulary_size // LOGITS_MULTIPLE) * LOGITS_MULTIPLE)
        torch.mm(x_ND, self._w_vocabulary, out=logits_NV[:, :vocabulary_size])
        logits_NV[:, vocabulary_size:] = -math.inf
        return logits_NV[:n_rows]
