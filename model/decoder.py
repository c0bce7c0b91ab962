"""Step-by-step decoding for beam search, with a cache of keys and values.

    decoder = IncrementalDecoder(model)          # for a Transformer; `model.architectures.make_decoder` for any model
    cache = decoder.start(source_BS)
    logits_NV = decoder.logits(decoder.step(tokens_BW, cache).flatten(0, 1))

A sentence's hypotheses form a tree. Its tokens' keys and values are stored once, in decoding order. A hypothesis
attends to the tokens on its path; a bias of -inf masks the others. Reordering hypotheses reorders only this bias, and
the W hypotheses of a sentence are W queries of one product. Tokens on no path are pruned now and then
(`DecoderCache.prune`); that changes the order of attention's sums, so results may differ in the last bits.

Two choices make it fast on a CPU (measured for 256 rows, 64 sentences × 4 hypotheses, d_model 192, on one AVX-512
core): keys are stored with positions innermost, which halves the time of the product, and one of the last sentences
takes the slot of a finished one, so the others need not move.

Shapes: B sentences, W hypotheses of each, S source length, M tokens of a sentence's tree, C their capacity,
D = d_model, V vocabulary, H heads, K = d_k, V = d_v of values; N rows, one per hypothesis (`model.cpu`); X any width.
"""

import math
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from model.batch import AttentionFunction, PaddedKeys, PaddedLayout, Rows
from model.cpu import pad_rows
from model.transformer import EncoderDecoder, Transformer

FIRST_ROOM = 16
"""Smallest capacity of a cache, in tokens. A full cache grows to twice the tokens needed."""
FIRST_PRUNED_TOKENS = 256
"""Smaller trees are not pruned: at 64, pruning saved no time for 13-token translations with beam 4."""
PRUNING_GROWTH = 1.5
"""A tree is pruned once it has grown by this factor since the last pruning."""
LOGITS_MULTIPLE = 64
"""The columns of logits are padded with -inf to a multiple of this."""


class HypothesisCache(Protocol):
    """A decoder's state for B sentences with W hypotheses each."""

    length: int
    """Number of positions decoded."""

    def branch(self, parents_BW: Tensor) -> None:
        """Replaces each sentence's hypotheses with continuations of `parents_BW` (long); W may change."""

    def keep(self, sentences: Tensor) -> None:
        """Keeps only `sentences` (long, (B',)), in the order of `compacted`."""


CacheT = TypeVar("CacheT", bound=HypothesisCache)


class Decoder(Generic[CacheT]):
    """Runs a model's decoder one position at a time: as the model up to rounding, with logits of at least float32.

    The model must be in evaluation mode. Build a new decoder after changing weights. Threads may share a decoder, each
    with its own caches.
    """

    def __init__(self, model: EncoderDecoder) -> None:
        self.model = model
        weight_VD = model.embedding.weight.detach()
        weight_VD = F.pad(weight_VD, (0, 0, 0, -len(weight_VD) % LOGITS_MULTIPLE))
        # A transposed copy: on CPUs the product takes 6% less time. Only CUDA has float32 products of bfloat16 factors.
        dtype = weight_VD.dtype if weight_VD.is_cuda else torch.promote_types(weight_VD.dtype, torch.float32)
        self._w_vocabulary_DV = weight_VD.t().to(dtype).contiguous()

    def start(self, source_BS: Tensor) -> CacheT:
        """Encodes sentences and returns their cache, with one hypothesis per sentence."""
        raise NotImplementedError

    def step(self, tokens_BW: Tensor, cache: CacheT) -> Tensor:
        """Decodes one position of every hypothesis: hidden_BWD, before the projection to the vocabulary."""
        raise NotImplementedError

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """Returns the next token's logits_NV, with columns padded with -inf to a multiple of 64.

        They are at least float32: in bfloat16, logits near 12 would be multiples of 0.06, and often tie.
        """
        weight_DV = self._w_vocabulary_DV
        dtype = torch.promote_types(weight_DV.dtype, torch.float32)
        options: dict[str, Any] = {"out_dtype": dtype} if dtype != weight_DV.dtype else {}
        logits_NV = torch.mm(hidden_ND.to(weight_DV.dtype), weight_DV, **options)
        logits_NV[:, self.model.config.vocabulary_size :] = -math.inf
        return logits_NV


@dataclass
class LayerCache:
    """Keys and values of one decoder layer: of the encoder's output and of the decoded tokens."""

    source_k_BHKS: Tensor
    source_v_BHSV: Tensor
    k_BHKC: Tensor
    v_BHCV: Tensor

    @classmethod
    def begin(cls, k_BHSK: Tensor, v_BHSV: Tensor) -> "LayerCache":
        """Starts with the keys and values of the encoder's output and no tokens."""
        k_BHKS, v_BHSV = k_BHSK.transpose(2, 3).contiguous(), v_BHSV.contiguous()
        return cls(k_BHKS, v_BHSV, k_BHKS[..., :0], v_BHSV[:, :, :0])

    def with_tokens(self, k_BHWK: Tensor, v_BHWV: Tensor, n_tokens: int) -> tuple[Tensor, Tensor]:
        """Stores the last W of the tree's `n_tokens` tokens; returns all keys and values: k_BHMK and v_BHMV."""
        before = n_tokens - k_BHWK.shape[2]
        if n_tokens > self.v_BHCV.shape[2]:
            k_BHKC, v_BHCV, room = self.k_BHKC, self.v_BHCV, max(2 * n_tokens, FIRST_ROOM)
            self.k_BHKC = k_BHKC.new_empty(*k_BHKC.shape[:3], room)
            self.v_BHCV = v_BHCV.new_empty(*v_BHCV.shape[:2], room, v_BHCV.shape[3])
            self.k_BHKC[..., :before], self.v_BHCV[:, :, :before] = k_BHKC[..., :before], v_BHCV[:, :, :before]
        self.k_BHKC[..., before:n_tokens] = k_BHWK.transpose(2, 3)
        self.v_BHCV[:, :, before:n_tokens] = v_BHWV
        return self.k_BHKC[..., :n_tokens].transpose(2, 3), self.v_BHCV[:, :, :n_tokens]

    def select(self, tokens_BX: Tensor) -> None:
        """Keeps only tokens `tokens_BX` of each sentence's tree, in this order."""
        n_tokens, (batch, n_heads, room, d_v) = tokens_BX.shape[1], self.v_BHCV.shape
        columns_BHKX = tokens_BX[:, None, None].expand(-1, n_heads, self.k_BHKC.shape[2], -1)
        self.k_BHKC[..., :n_tokens] = self.k_BHKC.gather(3, columns_BHKX)
        # Values are contiguous rows, and copying rows takes a third of the time of `gather`.
        first_BH1 = torch.arange(0, batch * n_heads * room, room, device=tokens_BX.device).view(batch, n_heads, 1)
        rows_N = (first_BH1 + tokens_BX[:, None]).flatten()
        kept_NV = self.v_BHCV.flatten(0, 2).index_select(0, rows_N)
        self.v_BHCV[:, :, :n_tokens] = kept_NV.view(batch, n_heads, n_tokens, d_v)

    def move(self, sources: Tensor, places: Tensor, n_sentences: int) -> None:
        """Copies the sentences `sources` to `places`, then keeps the first `n_sentences`."""
        for name, kept in vars(self).items():
            kept[places] = kept[sources]
            setattr(self, name, kept[:n_sentences])


class _Position(NamedTuple):
    """The layout of one position of all hypotheses; its keys are all tokens in a layer's cache."""

    rows: PaddedLayout
    cache: LayerCache
    row_keys: None = None

    def keys(self, k_NX: Tensor, v_NX: Tensor, n_heads: int) -> PaddedKeys:
        """Stores the position's keys and values; returns those of all tokens, with the bias that masks other paths."""
        k_BHWK, v_BHWV, bias_B1WM = self.rows.keys(k_NX, v_NX, n_heads)
        assert bias_B1WM is not None
        return PaddedKeys(*self.cache.with_tokens(k_BHWK, v_BHWV, n_tokens=bias_B1WM.shape[-1]), bias_B1WM)

    def attend(self, q_NX: Tensor, keys: PaddedKeys, function: AttentionFunction) -> Tensor:
        """Attends from the hypotheses to keys of their sentence."""
        return self.rows.attend(q_NX, keys, function)


@dataclass
class DecoderCache:
    """A Transformer decoder's state for B sentences with W hypotheses each."""

    layers: list[LayerCache]
    source_bias_B11S: Tensor | None
    """-inf at padding, else 0; None if there is no padding."""
    bias_BWM: Tensor
    """-inf at tokens off the hypothesis's path, else 0."""
    length: int = 0
    """Number of positions decoded."""
    prune_at_tokens: int = 0
    """Tree size at which `open_position` prunes, at least FIRST_PRUNED_TOKENS."""

    def branch(self, parents_BW: Tensor) -> None:
        """Replaces each sentence's hypotheses with continuations of `parents_BW` (long); W may change."""
        n_tokens = self.bias_BWM.shape[2]
        self.bias_BWM = self.bias_BWM.gather(1, parents_BW[:, :, None].expand(-1, -1, n_tokens))

    def keep(self, sentences: Tensor) -> None:
        """Keeps only `sentences` (long, (B',)), in the order of `compacted`."""
        places = (sentences != torch.arange(len(sentences), device=sentences.device)).nonzero().squeeze(1)
        for layer in self.layers:
            layer.move(sentences[places], places, len(sentences))
        self.bias_BWM = self.bias_BWM[sentences]
        if self.source_bias_B11S is not None:
            self.source_bias_B11S = self.source_bias_B11S[sentences]

    def prune(self) -> None:
        """Drops tokens on no path. All sentences keep as many as the one that needs most; the bias masks the rest."""
        live_BM = (self.bias_BWM == 0).any(dim=1)
        n_live = int(live_BM.sum(dim=1).max())
        if n_live < live_BM.shape[1]:
            tokens_BX = (~live_BM).sort(dim=1, stable=True).indices[:, :n_live]
            self.bias_BWM = self.bias_BWM.gather(2, tokens_BX[:, None].expand(-1, self.bias_BWM.shape[1], -1))
            for layer in self.layers:
                layer.select(tokens_BX)
        self.prune_at_tokens = int(PRUNING_GROWTH * n_live)

    def open_position(self, width: int) -> None:
        """Adds a position to the tree, at which each of `width` hypotheses sees only its own token."""
        if self.bias_BWM.shape[2] >= max(self.prune_at_tokens, FIRST_PRUNED_TOKENS):
            self.prune()
        own_WW = self.bias_BWM.new_full((width, width), -math.inf).fill_diagonal_(0)
        self.bias_BWM = torch.cat((self.bias_BWM, own_WW.expand(len(self.bias_BWM), -1, -1)), dim=2)


def compacted(open_B: Tensor) -> Tensor:
    """Orders open sentences (True in `open_B`) for `keep`: the last ones fill the slots of closed ones: (B',), long."""
    sentences = open_B.nonzero().squeeze(1)
    order = torch.arange(len(sentences), device=open_B.device)
    order[~open_B[: len(order)]] = sentences[sentences >= len(order)]
    return order


def attention_dtype(x: Tensor) -> torch.dtype:
    """Returns the dtype of cached keys and values: x's own, or float32 for bfloat16 on a CPU.

    oneDNN compiles a bfloat16 product for every new shape, and here every position has its own: compiling takes 5 ms
    on one AVX-512 core, the product 0.4 to 0.9 ms.
    """
    return torch.promote_types(x.dtype, torch.float32) if x.device.type == "cpu" else x.dtype


class IncrementalDecoder(Decoder[DecoderCache]):
    """Runs a Transformer's decoder, caching the keys and values of earlier positions."""

    model: Transformer

    def start(self, source_BS: Tensor) -> DecoderCache:
        """Encodes sentences and returns their cache, with one hypothesis per sentence."""
        encoder_output = self.model.encode(Rows.padded(source_BS, self.model.embedding.weight.dtype))
        dtype = attention_dtype(encoder_output.x_ND)
        layers = []
        for layer in self.model.decoder:
            k_BHSK, v_BHSV, bias_B11S = layer.cross_attention.keys(encoder_output)
            layers.append(LayerCache.begin(k_BHSK.to(dtype), v_BHSV.to(dtype)))
        bias_BWM = encoder_output.x_ND.new_empty(len(source_BS), 1, 0, dtype=dtype)
        return DecoderCache(layers, None if bias_B11S is None else bias_B11S.to(dtype), bias_BWM)

    def step(self, tokens_BW: Tensor, cache: DecoderCache) -> Tensor:
        """Decodes one position of every hypothesis: hidden_BWD, before the projection to the vocabulary."""
        batch, width = tokens_BW.shape
        cache.open_position(width)
        hypotheses = PaddedLayout(batch, width, cache.bias_BWM[:, None])
        tokens_N = pad_rows(tokens_BW.flatten(), self.model.embedding.weight.dtype)
        x_ND = self.model.embed(tokens_N, torch.full_like(tokens_N, cache.length), cache.length + 1)
        for layer, stored in zip(self.model.decoder, cache.layers, strict=True):
            source = PaddedKeys(stored.source_k_BHKS.transpose(2, 3), stored.source_v_BHSV, cache.source_bias_B11S)
            x_ND = layer.forward_cached(x_ND, _Position(hypotheses, stored), source)
        cache.length += 1
        return hypotheses.by_sentence(x_ND)
