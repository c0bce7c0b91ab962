"""Records attention weights in a forward pass, and switches heads off (paper §3.2, appendix).

    with recording(model) as weights:
        model(batch.source, batch.inputs)
    weights.cross[layer]                                     # weights_BHTS

    with head_off(attentions(model, "encoder")[0], 2):       # head 2 of the first layer contributes nothing
        model(batch.source, batch.inputs)

Both use an attention function's `on_weights`, which is None otherwise.

Shapes: B batch, S source length, T target length, L query length, M key length, H heads.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from model.attention import MultiHeadAttention
from model.transformer import EncoderLayer, Transformer
from pipeline.attention.records import KINDS, Kind


class AttentionWeights(NamedTuple):
    """The weights of a forward pass, one (B, H, L, M) tensor per layer."""

    encoder: list[Tensor]
    decoder: list[Tensor]
    """Row t writes output token t; column t is the token read there: BEGIN_ID, then the output."""
    cross: list[Tensor]


def attentions(model: Transformer, kind: Kind) -> list[MultiHeadAttention]:
    """Returns the attention modules of one kind, first layer first."""
    if kind == "encoder":
        layers = (layer for layer in model.encoder if isinstance(layer, EncoderLayer))
        return [layer.attention for layer in layers]
    return [layer.self_attention if kind == "decoder" else layer.cross_attention for layer in model.decoder]


@contextmanager
def _passing(attention: MultiHeadAttention, function: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Passes an attention's weights through `function`, after its current `on_weights`."""
    before = attention.function.on_weights
    attention.function.on_weights = (lambda weights: function(before(weights))) if before else function
    try:
        yield
    finally:
        attention.function.on_weights = before


@contextmanager
def recording(model: Transformer) -> Iterator[AttentionWeights]:
    """Collects the weights of a forward pass in the body, detached."""
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
def head_off(attention: MultiHeadAttention, head: int) -> Iterator[None]:
    """Switches a head off in the body by zeroing its weights."""
    on_H11 = torch.ones(attention.n_heads, 1, 1)
    on_H11[head] = 0
    with _passing(attention, lambda weights_BHLM: weights_BHLM * on_H11.to(weights_BHLM)):
        yield
