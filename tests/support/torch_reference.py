from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from model.attention import MultiHeadAttention, SelfAttention
from model.transformer import Transformer

Same = list[tuple[Sequence[nn.Parameter], nn.Parameter]]
"""Our parameters, and the one of torch's that holds their rows."""


def copy_layers(ours: Transformer, encoder: Iterable[Any], decoder: Iterable[Any]) -> Same:
    attentions: list[tuple[MultiHeadAttention, Any]] = []
    modules: list[tuple[nn.Module, Any]] = []
    for mine, theirs in zip(ours.encoder, encoder, strict=True):
        attentions.append((mine.attention, theirs.self_attn))
        modules += [(mine.attention_norm, theirs.norm1), (mine.feed_forward_norm, theirs.norm2)]
        modules += [(mine.feed_forward.w_1, theirs.linear1), (mine.feed_forward.w_2, theirs.linear2)]
    for mine, theirs in zip(ours.decoder, decoder, strict=True):
        attentions += [(mine.self_attention, theirs.self_attn), (mine.cross_attention, theirs.multihead_attn)]
        modules += [(mine.self_attention_norm, theirs.norm1), (mine.cross_attention_norm, theirs.norm2)]
        modules.append((mine.feed_forward_norm, theirs.norm3))
        modules += [(mine.feed_forward.w_1, theirs.linear1), (mine.feed_forward.w_2, theirs.linear2)]
    same: Same = [([each], copy) for own, copied in modules for each, copy in _parameters(own, copied)]
    for attention, reference in attentions:
        is_self = isinstance(attention, SelfAttention)
        projections = [attention.w_qkv.weight] if is_self else [attention.w_q.weight, attention.w_kv.weight]
        same += [(projections, reference.in_proj_weight), ([attention.w_o.weight], reference.out_proj.weight)]
        nn.init.zeros_(reference.in_proj_bias)
        nn.init.zeros_(reference.out_proj.bias)
    with torch.no_grad():
        for own, copied in same:
            copied.copy_(torch.cat([*own]))
    return same


def _parameters(ours: nn.Module, theirs: nn.Module) -> Iterable[tuple[nn.Parameter, nn.Parameter]]:
    return ((each, theirs.get_parameter(name)) for name, each in ours.named_parameters())
