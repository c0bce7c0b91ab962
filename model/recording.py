"""Attention weights, recorded as a forward pass uses them, and heads switched off (paper §3.2, appendix).

    with recording(model) as weights:
        model(batch.source, batch.inputs)
    weights.cross[layer]                                     # weights_BHTS

    decoder = RecordingDecoder(model)                        # for the search that translates
    best = beam_search(decoder, source_1S)[0][0]
    decoder.weights(best.tokens).decoder[layer]              # weights_HTT of that output

    with heads_off(attentions(model, "encoder")[0], [2]):    # head 2 of the first layer adds nothing
        model(batch.source, batch.inputs)

Both use the one place of an attention that sees its weights, `MultiHeadAttention.on_weights`, which is None otherwise.

Shapes: B batch, S source length, T target length, L query length, M key length, H heads, W hypotheses.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from model.attention import MultiHeadAttention
from model.cache import DecoderCache
from model.config import BEGIN_ID
from model.incremental import IncrementalDecoder
from model.transformer import EncoderLayer, Transformer

Kind = Literal["encoder", "decoder", "cross"]
"""The encoder's self-attention, the decoder's, and the decoder's attention to the encoder's output (§3.2.3)."""
KINDS: tuple[Kind, ...] = get_args(Kind)


class AttentionWeights(NamedTuple):
    """The weights of a forward pass, one tensor a layer: (B, H, L, M), or (H, L, M) where they are of one sentence."""

    encoder: list[Tensor]
    decoder: list[Tensor]
    """Row t writes the output's token t, and column t belongs to the token read there: BEGIN_ID, then the output."""
    cross: list[Tensor]


def attentions(model: Transformer, kind: Kind) -> list[MultiHeadAttention]:
    """Returns the attentions of one kind, first layer first."""
    if kind == "encoder":
        layers = (layer for layer in model.encoder if isinstance(layer, EncoderLayer))
        return [layer.attention for layer in layers]
    return [layer.self_attention if kind == "decoder" else layer.cross_attention for layer in model.decoder]


@contextmanager
def _passing(attention: MultiHeadAttention, function: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Passes the weights of an attention through `function`, after whatever they already pass through."""
    before = attention.on_weights
    attention.on_weights = (lambda weights: function(before(weights))) if before else function
    try:
        yield
    finally:
        attention.on_weights = before


@contextmanager
def recording(model: Transformer) -> Iterator[AttentionWeights]:
    """Collects the weights of a forward pass that is run in the body; they hold no gradient."""
    weights = AttentionWeights([], [], [])

    def kept_in(weights: list[Tensor]) -> Callable[[Tensor], Tensor]:
        def keep(weights_BHLM: Tensor) -> Tensor:
            weights.append(weights_BHLM.detach())
            return weights_BHLM

        return keep

    with ExitStack() as stack:
        for kind in KINDS:
            for attention in attentions(model, kind):
                stack.enter_context(_passing(attention, kept_in(getattr(weights, kind))))
        yield weights


@contextmanager
def heads_off(attention: MultiHeadAttention, heads: Collection[int]) -> Iterator[None]:
    """Switches heads off in the body: their weights are 0, so they add nothing. Raises IndexError if there is none."""
    for head in heads:
        if not 0 <= head < attention.n_heads:
            raise IndexError(f"there is no head {head} of {attention.n_heads}")
    on_H11 = torch.tensor([[[float(head not in heads)]] for head in range(attention.n_heads)])

    def mask(weights_BHLM: Tensor) -> Tensor:
        return weights_BHLM * on_H11.to(weights_BHLM)

    with _passing(attention, mask):
        yield


@dataclass
class _FollowedCache(DecoderCache):
    """A cache of one sentence that knows the tokens of its hypotheses."""

    prefixes_W: list[tuple[int, ...]] = field(default_factory=lambda: [()])

    def branch(self, parents_BW: Tensor) -> None:
        """See `DecoderCache.branch`."""
        super().branch(parents_BW)
        self.prefixes_W = [self.prefixes_W[parent] for parent in parents_BW[0].tolist()]


class _Position(NamedTuple):
    """What was recorded while one position of every hypothesis was decoded."""

    rows: dict[tuple[int, ...], int]
    """The row of each hypothesis, by the tokens read so far."""
    path_WM: Tensor
    """True where a token of the tree is on the hypothesis's path; those are in the order of decoding."""
    weights: AttentionWeights


class RecordingDecoder(IncrementalDecoder):
    """Decodes one sentence as `IncrementalDecoder` does, and keeps the weights of every hypothesis it follows."""

    def start(self, source_BS: Tensor) -> DecoderCache:
        """Encodes one sentence, forgetting the last. Raises ValueError if there are several."""
        if len(source_BS) != 1:
            raise ValueError(f"{len(source_BS)} sentences: weights are recorded of one at a time")
        with recording(self.model) as weights:
            cache = super().start(source_BS)
        self._encoder, self._positions = weights.encoder, list[_Position]()
        return _FollowedCache(cache.layers, cache.memory_bias_B11S, cache.bias_BWM)

    def step(self, tokens_BW: Tensor, cache: DecoderCache) -> Tensor:
        """Decodes one position of every hypothesis: hidden_BWD."""
        assert isinstance(cache, _FollowedCache)
        with recording(self.model) as weights:
            hidden_BWD = super().step(tokens_BW, cache)
        tokens_W = tokens_BW[0].tolist()
        cache.prefixes_W = [(*before, token) for before, token in zip(cache.prefixes_W, tokens_W, strict=True)]
        # Of equal prefixes, which only hypotheses of probability 0 have, the first is the one that counts.
        rows = {prefix: row for row, prefix in reversed([*enumerate(cache.prefixes_W)])}
        self._positions.append(_Position(rows, cache.bias_BWM[0] == 0, weights))
        return hidden_BWD

    def weights(self, tokens: Collection[int]) -> AttentionWeights:
        """Returns the weights with which the sentence was encoded and `tokens`, without END_ID, were decoded.

        Per layer weights_HSS, weights_HTT and weights_HTS, where T counts END_ID. Raises KeyError if the search did not
        follow that output.
        """
        read = (BEGIN_ID, *tokens)
        recorded = AttentionWeights([weights_1HSS[0] for weights_1HSS in self._encoder], [], [])
        for layer in range(len(self.model.decoder)):
            self_attention, cross = [], []
            for t, position in enumerate(self._positions[: len(read)], start=1):
                row = position.rows[read[:t]]
                own_HM = position.weights.decoder[layer][0, :, row, position.path_WM[row]]
                self_attention.append(torch.nn.functional.pad(own_HM, (0, len(read) - t)))
                cross.append(position.weights.cross[layer][0, :, row])
            recorded.decoder.append(torch.stack(self_attention, dim=1))
            recorded.cross.append(torch.stack(cross, dim=1))
        return recorded
