"""Runs torch's variable-length attention on a CPU, sentence by sentence, in place of the GPU kernels.

The operator, its gradient and its tracing rules stay torch's own. Only the kernels are replaced. Rows outside of
sentences are NaN, because GPU kernels leave them undefined.

Shapes: N rows of queries, M rows of keys, H heads, X columns; L queries and K keys of one sentence.
"""

import math
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor


@cache
def register() -> None:
    from torch.nn.attention import varlen

    varlen._varlen_attn.register_kernel("cpu", _forward)
    varlen._varlen_attn_backward.register_kernel("cpu", _backward)


def _sentences(offsets_q: Tensor, offsets_k: Tensor) -> Any:
    for (first, last), (first_key, last_key) in zip(
        pairwise(offsets_q.tolist()), pairwise(offsets_k.tolist()), strict=True
    ):
        assert (first == last) == (first_key == last_key), "queries without keys, or keys without queries"
        if first < last:
            yield slice(first, last), slice(first_key, last_key)


def _weights(q_LHX: Tensor, k_KHX: Tensor, scale: float, causal: bool, window: list[int]) -> Tensor:
    scores_HLK = torch.einsum("lhx,khx->hlk", q_LHX, k_KHX) * scale
    offset_LK = torch.arange(len(k_KHX)) - torch.arange(len(q_LHX))[:, None]
    before, after = window[0], 0 if causal else window[1]
    for limit, distance_LK in ((before, -offset_LK), (after, offset_LK)):
        if limit >= 0:
            scores_HLK = scores_HLK.masked_fill(distance_LK > limit, -math.inf)
    return scores_HLK.softmax(dim=-1)


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    scale: float | None = None,
    window_size: list[int] | None = None,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    assert query.shape[1:] == key.shape[1:] == value.shape[1:], "kernels need heads of one size"
    assert query.shape[-1] % 8 == 0, "kernels need heads of a multiple of 8 columns"
    assert query.shape[-1] <= 256, "kernels need heads of at most 256 columns"
    assert max_q >= cu_seq_q.diff().max(), "a sentence is longer than it was said to be"
    assert max_k >= cu_seq_k.diff().max(), "a sentence is longer than it was said to be"
    x_NHX = torch.full_like(query, math.nan)
    for rows, keys in _sentences(cu_seq_q, cu_seq_k):
        weights_HLK = _weights(query[rows], key[keys], scale or 1, is_causal, window_size or [-1, -1])
        x_NHX[rows] = torch.einsum("hlk,khx->lhx", weights_HLK, value[keys])
    lse_HN = torch.empty(query.shape[1], len(query))
    return x_NHX, lse_HN, torch.zeros(2, dtype=torch.uint64)


def _backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    is_causal: bool,
    rng_state: Tensor,
    scale: float | None = None,
    window_size: list[int] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    grad_q_NHX, grad_k_MHX, grad_v_MHX = (torch.full_like(x, math.nan) for x in (query, key, value))
    for rows, keys in _sentences(cu_seq_q, cu_seq_k):
        weights_HLK = _weights(query[rows], key[keys], scale or 1, is_causal, window_size or [-1, -1])
        grad_v_MHX[keys] = torch.einsum("hlk,lhx->khx", weights_HLK, grad_out[rows])
        grad_weights_HLK = torch.einsum("lhx,khx->hlk", grad_out[rows], value[keys])
        mean_HL1 = (grad_weights_HLK * weights_HLK).sum(dim=-1, keepdim=True)
        grad_scores_HLK = weights_HLK * (grad_weights_HLK - mean_HL1) * (scale or 1)
        grad_q_NHX[rows] = torch.einsum("hlk,khx->lhx", grad_scores_HLK, key[keys])
        grad_k_MHX[keys] = torch.einsum("hlk,lhx->khx", grad_scores_HLK, query[rows])
    return grad_q_NHX, grad_k_MHX, grad_v_MHX
