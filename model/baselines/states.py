"""Shared by the recurrent and convolutional models: attention to the source, and decoding with fixed-size states.

Where the Transformer caches keys and values of all tokens, these keep one state per hypothesis. Padding never reaches a
real position. Packed batches raise ValueError (`Rows.by_sentence`).

Shapes: B sentences, S source length, Q queries (positions or hypotheses), W hypotheses of each; K columns of keys, V of
values, D = d_model, N rows, X any width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor

from model.batch import Rows, masking_bias
from model.config import PAD_ID
from model.cpu import pad_rows, softmax
from model.decoder import Decoder, attention_dtype
from model.transformer import EncoderDecoder


class Source(NamedTuple):
    """The encoder's output as keys and values, in `attention_dtype`."""

    keys_BSK: Tensor
    values_BSV: Tensor
    bias_B1S: Tensor
    """-inf at padding, else 0."""
    n_tokens_B11: Tensor

    @classmethod
    def of(cls, tokens_BS: Tensor, keys_BSK: Tensor, values_BSV: Tensor) -> "Source":
        """Builds the source with the padding of `tokens_BS` masked."""
        padding_B1S = (tokens_BS == PAD_ID)[:, None]
        dtype = attention_dtype(keys_BSK)
        n_tokens_B11 = (~padding_B1S).sum(dim=2, keepdim=True).to(dtype)
        return cls(keys_BSK.to(dtype), values_BSV.to(dtype), masking_bias(padding_B1S, dtype), n_tokens_B11)

    def mean(self, scores_BQS: Tensor) -> Tensor:
        """Returns the values averaged by the softmax of the scores: x_BQV."""
        return softmax(scores_BQS + self.bias_B1S) @ self.values_BSV


@dataclass
class StateCache:
    """A stateful decoder's state for B sentences with W hypotheses each."""

    source: Source
    states: list[Tensor]
    """Each (B, W, ...)."""
    length: int = 0
    """Number of positions decoded."""

    def branch(self, parents_BW: Tensor) -> None:
        """Replaces each sentence's hypotheses with continuations of `parents_BW` (long); W may change."""
        sentence_B1 = torch.arange(len(parents_BW), device=parents_BW.device)[:, None]
        self.states = [state[sentence_B1, parents_BW] for state in self.states]

    def keep(self, sentences: Tensor) -> None:
        """Keeps only `sentences` (long, (B',)), in the order given."""
        self.source = Source(*(tensor[sentences] for tensor in self.source))
        self.states = [state[sentences] for state in self.states]


class StatefulModel(EncoderDecoder):
    """A model whose decoder continues a hypothesis from a fixed-size state."""

    def first_states(self, batch: int) -> list[Tensor]:
        """Returns the states before the first position, with one hypothesis per sentence: (B, 1, ...) each."""
        raise NotImplementedError

    def step(self, tokens_BW: Tensor, cache: StateCache) -> Tensor:
        """Decodes one position of every hypothesis and updates its states: hidden_BWD."""
        raise NotImplementedError


class StateDecoder(Decoder[StateCache]):
    """Runs the decoder of a `StatefulModel` one position at a time."""

    def start(self, source_BS: Tensor) -> StateCache:
        """Encodes sentences and returns their cache, with one hypothesis per sentence."""
        model = cast("StatefulModel", self.model)
        source = model.encode(Rows.padded(source_BS, model.embedding.weight.dtype))
        return StateCache(source, model.first_states(len(source_BS)))

    def step(self, tokens_BW: Tensor, cache: StateCache) -> Tensor:
        """Decodes one position of every hypothesis: hidden_BWD, before the projection to the vocabulary."""
        hidden_BWD = cast("StatefulModel", self.model).step(tokens_BW, cache)
        cache.length += 1
        return hidden_BWD


def apply_rowwise(function: Callable[[Tensor], Tensor], x_BQX: Tensor) -> Tensor:
    """Applies a row-wise function, with rows padded by `model.cpu.pad_rows`."""
    batch, queries, _ = x_BQX.shape
    return function(pad_rows(x_BQX.flatten(0, 1)))[: batch * queries].view(batch, queries, -1)
