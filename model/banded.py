"""Self-attention restricted to a neighbourhood of r positions (paper §4): r·n products instead of n².

    x_BHLV = neighbourhood_attention(q_BHLK, k_BHLK, v_BHLV, window=9)       # four positions on either side

Queries are processed in blocks of r. Each block attends to the 2r - 1 keys within reach of any of its queries, so a
layer computes fewer than 2·r·n pairs (plus the padding of the last block) as dense matrix products. Sentences shorter
than 2r use the full product, which is smaller.

Shapes: B batch, L length, H heads, K = d_k, V = d_v; N, M rows of a batch (`model.batch`); G blocks, C positions of a
block, W keys of a block; X any width.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from model.attention import OnWeights, ScaledDotProductAttention, attention
from model.dropout import Dropout


def reach(window: int) -> tuple[int, int]:
    """Returns how many positions before and after its own a query sees; an even window sees one more before."""
    return window // 2, (window - 1) // 2


def out_of_reach(length: int, window: int, device: torch.device) -> Tensor:
    """Returns mask_LL: True where a key is out of the query's reach."""
    before, after = reach(window)
    full_LL = torch.ones(length, length, dtype=torch.bool, device=device)
    return full_LL.triu(after + 1) | full_LL.tril(-before - 1)


def count_pairs(length: int, window: int) -> int:
    """Counts the query-key pairs computed for one sentence in each head."""
    if length < 2 * window:
        return length * length
    return -(-length // window) * window * (2 * window - 1)


def neighbourhood_attention(
    q_BHLK: Tensor,
    k_BHLK: Tensor,
    v_BHLV: Tensor,
    window: int,
    padding_B11L: Tensor | None = None,
    on_weights: OnWeights | None = None,
    dropout: OnWeights | None = None,
) -> Tensor:
    """Computes softmax(Q Kᵀ / √d_k) V (eq. 1) of each query with the keys around it: x_BHLV.

    `padding_B11L` masks keys. A query whose keys are all masked (only padding has none) gets a finite, meaningless
    vector. `on_weights` and `dropout` receive the weights of all keys, 0 out of reach, from the full product.
    """
    length = q_BHLK.shape[2]
    if length < 2 * window or on_weights is not None or dropout is not None:
        masked = out_of_reach(length, window, q_BHLK.device)
        masked = masked if padding_B11L is None else masked | padding_B11L
        return attention(q_BHLK, k_BHLK, v_BHLV, _bias(masked, q_BHLK.dtype), on_weights, dropout)
    before, _ = reach(window)
    n_blocks = -(-length // window)
    missing = n_blocks * window - length
    q_BHGCK = F.pad(q_BHLK, (0, 0, 0, missing)).unflatten(2, (n_blocks, window))
    k_BHGWK, v_BHGWV = (_seen(x_BHLX, before, missing, n_blocks, window) for x_BHLX in (k_BHLK, v_BHLV))
    bias = _bias(_masked(length, window, padding_B11L, q_BHLK.device), q_BHLK.dtype)
    return attention(q_BHGCK, k_BHGWK, v_BHGWV, bias).flatten(2, 3)[:, :, :length]


def _bias(masked: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the bias, large but finite: a row of -inf would become NaN, which a weight of 0 lets into other rows."""
    zeros = torch.zeros(masked.shape, dtype=dtype, device=masked.device)
    return zeros.masked_fill_(masked, torch.finfo(dtype).min)


def _seen(x_BHLX: Tensor, before: int, missing: int, n_blocks: int, window: int) -> Tensor:
    """Returns each block's keys or values: x_BHGWX, with W = 2·window - 1.

    They are the block and its successor in the sequence shifted by `before`. Two slices are concatenated instead of
    unfolding one, because unfold's backward sums element by element.
    """
    x_BHGCX = F.pad(x_BHLX, (0, 0, before, missing + window - before)).unflatten(2, (n_blocks + 1, window))
    return torch.cat((x_BHGCX[:, :, :-1], x_BHGCX[:, :, 1:, :-1]), dim=3)


def _masked(length: int, window: int, padding_B11L: Tensor | None, device: torch.device) -> Tensor:
    """Returns the mask, broadcastable to (B, H, G, C, W): out of reach, beyond either end, or padding."""
    before, _ = reach(window)
    n_blocks = -(-length // window)
    query_C1 = torch.arange(window, device=device)[:, None]
    key_W = torch.arange(2 * window - 1, device=device)
    out_of_reach_CW = (key_W < query_C1) | (key_W >= query_C1 + window)
    position_GW = torch.arange(n_blocks, device=device)[:, None] * window + key_W - before
    beyond_GW = (position_GW < 0) | (position_GW >= length)
    if padding_B11L is not None:
        beyond_BG1W = beyond_GW[:, None] | padding_B11L[:, 0, 0, position_GW.clamp(0, length - 1)][:, :, None]
        return (out_of_reach_CW | beyond_BG1W)[:, None]
    return out_of_reach_CW | beyond_GW[:, None]


class NeighbourhoodAttention(ScaledDotProductAttention):
    """Equation 1 restricted to the `window` positions around each query (§4), for self-attention."""

    def __init__(self, window: int, dropout: Dropout | None = None) -> None:
        super().__init__(dropout)
        self.window, self.reach = window, reach(window)

    def attend(
        self, q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, bias: Tensor | None, dropout: OnWeights | None
    ) -> Tensor:
        """Returns x_BHLV; the bias may only mask padding."""
        padding_B11M = None if bias is None else bias.isneginf()
        return neighbourhood_attention(q_BHLK, k_BHMK, v_BHMV, self.window, padding_B11M, self.on_weights, dropout)
