"""The decoder, run one position at a time as beam search needs it.

    decoder = IncrementalDecoder(model)
    cache = decoder.start(source_BS)
    logits_NV = decoder.logits(decoder.step(tokens_BW, cache).flatten(0, 1))

Shapes: B sentences, W hypotheses of each, S source length; D = d_model, V vocabulary; N rows, one per hypothesis
(`model.cpu`).
"""

import math

import torch
from torch import Tensor

from model.batch import Grid, Memory, grid
from model.cache import DecoderCache, LayerCache
from model.cpu import filled
from model.transformer import Transformer

LOGITS_MULTIPLE = 64
"""Rows of logits are padded with -inf to a multiple of this."""


def attention_dtype(x: Tensor) -> torch.dtype:
    """Returns the dtype for cached keys and values: x's own, but float32 instead of bfloat16 on a CPU.

    oneDNN compiles a bfloat16 product for every shape it meets, and here every position has its own shape: each takes
    5 ms on one AVX-512 core, where the product itself takes 0.4 to 0.9.
    """
    return torch.promote_types(x.dtype, torch.float32) if x.device.type == "cpu" else x.dtype


class IncrementalDecoder:
    """Runs a model's decoder with a cache, so that each position's keys and values are computed once.

    Make a new one when the weights change. The model must be in evaluation mode. Hidden states and logits equal those
    of the model itself (tests/model/test_transformer.py). Threads may share one, each with caches of its own.
    """

    def __init__(self, model: Transformer) -> None:
        self.model = model
        # A copy, transposed: on CPUs the product with it takes 6 % less.
        self._w_vocabulary_DV = model.embedding.weight.detach().t().contiguous()

    def start(self, source_BS: Tensor) -> DecoderCache:
        """Encodes sentences and prepares their cache, with one hypothesis per sentence."""
        source = grid(source_BS, self.model.embedding.weight.dtype)
        memory, sentences = self.model.encode(source), source.sentences
        assert isinstance(sentences, Grid)
        dtype = attention_dtype(memory.x_ND)
        layers = []
        for layer in self.model.decoder:
            cross = layer.cross_attention
            projected = (sentences.by_head(x_NX, cross.n_heads) for x_NX in cross.keys_values(memory.x_ND))
            layers.append(LayerCache.of_memory(*(x_BHSX.to(dtype) for x_BHSX in projected)))
        bias_BWM = memory.x_ND.new_empty(len(source_BS), 1, 0, dtype=dtype)
        return DecoderCache(layers, None if sentences.bias is None else sentences.bias.to(dtype), bias_BWM)

    def step(self, tokens_BW: Tensor, cache: DecoderCache) -> Tensor:
        """Decodes one position of every hypothesis: hidden_BWD, before the projection to the vocabulary."""
        batch, width = tokens_BW.shape
        cache.open_position(width)
        hypotheses = Grid(batch, width, cache.bias_BWM[:, None])
        tokens_N = filled(tokens_BW.flatten(), self.model.embedding.weight.dtype)
        x_ND = self.model.embed(tokens_N, torch.full_like(tokens_N, cache.length), cache.length + 1)
        memory = Memory(x_ND[:0], Grid(batch, 0, cache.memory_bias_B11S))  # the layers' caches have its keys and values
        for layer, layer_cache in zip(self.model.decoder, cache.layers, strict=True):
            x_ND = layer(x_ND, hypotheses, memory, layer_cache)
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
