"""Multi-head attention (paper §3.2).

Shapes: B batch, L query length, M key length, D = d_model, H heads, K = d_k, V = d_v; N rows: the
B·L (or B·M) positions of a batch, sentence after sentence, and whatever follows them (`model.rows`).
Masks are True where a query may not look.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.rows import extended

CPU_VECTOR = 16
"""float32 numbers in an AVX-512 register."""


def softmax(scores: Tensor) -> Tensor:
    """Over the last dimension.

    On CPUs torch goes through rows shorter than a vector register one number at a time, so these are filled up: 6 000
    rows of 12 take 0.2 ms instead of 1.3 on one AVX-512 core at 2.8 GHz, and a third of the time backward.
    """
    if scores.device.type != "cpu" or scores.shape[-1] >= CPU_VECTOR:
        return torch.softmax(scores, dim=-1)
    missing = CPU_VECTOR - scores.shape[-1]
    return torch.softmax(F.pad(scores, (0, missing), value=-math.inf), dim=-1)[..., :-missing]


class MultiHeadAttention(nn.Module):
    """softmax(Q Kᵀ / √d_k) V for h heads, joined and projected by W_O; projections without bias (§3.2.2).

    The weights of one kind lie in one matrix, heads one after the other: `w_q` (H·K, D), `w_kv` (H·K + H·V, D)
    with the keys first, `w_o` (D, H·V).
    """

    def __init__(self, d_model: int, n_heads: int, d_k: int, d_v: int) -> None:
        super().__init__()
        self.n_heads, self.d_k, self.d_v = n_heads, d_k, d_v
        self.w_q = nn.Linear(d_model, n_heads * d_k, bias=False)
        self.w_kv = nn.Linear(d_model, n_heads * (d_k + d_v), bias=False)
        self.w_o = nn.Linear(n_heads * d_v, d_model, bias=False)
        with torch.no_grad():
            # Xavier for each projection by itself, as if keys and values were two matrices.
            for weight in (self.w_q.weight, *self.w_kv.weight.split([n_heads * d_k, n_heads * d_v]), self.w_o.weight):
                nn.init.xavier_uniform_(weight)

    def queries(self, x_ND: Tensor, batch: int, length: int) -> Tensor:
        """q_BHLK of the first `batch * length` rows."""
        return self.w_q(x_ND)[: batch * length].view(batch, length, self.n_heads, self.d_k).transpose(1, 2)

    def keys_values(self, x_ND: Tensor, batch: int, length: int) -> tuple[Tensor, Tensor]:
        """k_BHMK and v_BHMV of the first `batch * length` rows: what a decoder caches."""
        keys_values_BMX = self.w_kv(x_ND)[: batch * length].view(batch, length, -1)
        k_flat, v_flat = keys_values_BMX.split([self.n_heads * self.d_k, self.n_heads * self.d_v], dim=-1)
        k_BHMK = k_flat.view(batch, length, self.n_heads, self.d_k).transpose(1, 2)
        v_BHMV = v_flat.view(batch, length, self.n_heads, self.d_v).transpose(1, 2)
        return k_BHMK, v_BHMV

    def attend(self, q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, mask: Tensor | None, n_rows: int) -> Tensor:
        """-> x_ND of `n_rows` rows. `mask`, broadcastable to (B, H, L, M), is True where a query may not look."""
        scores_BHLM = (q_BHLK @ k_BHMK.transpose(-1, -2)).mul_(1 / math.sqrt(self.d_k))
        if mask is not None:
            scores_BHLM = scores_BHLM.masked_fill_(mask, -math.inf)
        x_BHLV = softmax(scores_BHLM) @ v_BHMV
        x_NX = x_BHLV.transpose(1, 2).reshape(-1, self.n_heads * self.d_v)
        return self.w_o(extended(x_NX, n_rows))

    def forward(
        self, x_ND: Tensor, memory_ND: Tensor, batch: int, length: int, memory_length: int, mask: Tensor | None
    ) -> Tensor:
        """Queries from `x_ND`, keys and values from `memory_ND` (the same tensor for self-attention) -> x_ND."""
        keys_values = self.keys_values(memory_ND, batch, memory_length)
        return self.attend(self.queries(x_ND, batch, length), *keys_values, mask, x_ND.shape[0])
