"""Records attention weights in a forward pass (paper §3.2, appendix).

    with recording(model) as weights:
        model(batch.source, batch.inputs)
    weights.cross[layer]                                     # weights_BHTS

An attention function's `on_weights` is set meanwhile; it is None otherwise.

Shapes: B batch, S source length, T target length, L query length, M key length, H heads.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal, NamedTuple, get_args

from torch import Tensor

from model.attention import MultiHeadAttention
from model.transformer import EncoderLayer, Transformer

Kind = Literal["encoder", "decoder", "cross"]
"""Encoder self-attention, decoder self-attention, or cross-attention (§3.2.3)."""
KINDS: tuple[Kind, ...] = get_args(Kind)


class AttentionWeights(NamedTuple):
    """The weights of a forward pass, one (B, H, L, M) tensor per layer."""

    encoder: list[Tensor]
    decoder: list[Tensor]
    """Row t writes output token t; column t is the token read there: BEGIN_ID, then the output."""
    cross: list[Tensor]


def attentions(model: Transformer, kind: Kind) -> list[MultiHeadAttention]:
    """Returns the attention modules of one kind, first layer first."""
    if kind == "encoder":
        return [layer.attention for layer in model.encoder if isinstance(layer, EncoderLayer)]
    return [layer.self_attention if kind == "decoder" else layer.cross_attention for layer in model.decoder]


@contextmanager
def recording(model: Transformer) -> Iterator[AttentionWeights]:
    """Collects the weights of a forward pass in the body, detached."""
    weights = AttentionWeights([], [], [])

    def keep(kept: list[Tensor], weights_BHLM: Tensor) -> Tensor:
        kept.append(weights_BHLM.detach())
        return weights_BHLM

    functions = [(one.function, getattr(weights, kind)) for kind in KINDS for one in attentions(model, kind)]
    for function, of_kind in functions:
        function.on_weights = partial(keep, of_kind)
    try:
        yield weights
    finally:
        for function, _ in functions:
            function.on_weights = None
