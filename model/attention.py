"""Multi-head attention (paper §3.2).

Shapes: B batch, L query length, M key length, D = d_model, H heads, K = d_k, V = d_v; N the rows of a
batch, one per position (`model.rows`).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.dropout import Dropout
from model.rows import Layout, Memory, filled

CPU_VECTOR_BYTES = 64
"""Size of an AVX-512 register."""
LARGE_ON_CPU = 1 << 18
"""Numbers in the queries from which on a CPU attends in bfloat16, if the weights are of that type (`by_size`)."""
OnWeights = Callable[[Tensor], Tensor]
"""Is given weights_BHLM as soon as they are computed and returns those to use (`model.recording`)."""


def softmax(scores: Tensor) -> Tensor:
    """Computes the softmax over the last dimension.

    On CPUs, torch processes rows shorter than a vector register one number at a time, so such rows are padded to the
    register's width: 6 000 rows of 12 then take 0.2 ms instead of 1.3 on one AVX-512 core at 2.8 GHz, and the backward
    pass a third of the time.
    """
    missing = CPU_VECTOR_BYTES // scores.element_size() - scores.shape[-1]
    if scores.device.type != "cpu" or missing <= 0:
        return torch.softmax(scores, dim=-1)
    return torch.softmax(F.pad(scores, (0, missing), value=-math.inf), dim=-1)[..., :-missing]


def by_size(x_BHLX: Tensor, n_queries: int) -> Tensor:
    """Converts queries, keys or values, given the numbers in the queries, to the type in which they attend fastest.

    For bfloat16 on a CPU that is float32 in small batches: oneDNN compiles a bfloat16 product for each shape it meets,
    and an attention has six, whose lengths differ from batch to batch. That takes 3 ms on one core with AVX512-BF16,
    where forward and backward of 400 rows of width 64 take 0.7 in float32. From LARGE_ON_CPU on, what bfloat16 saves
    is more than that.
    """
    if x_BHLX.device.type != "cpu" or x_BHLX.dtype != torch.bfloat16 or n_queries >= LARGE_ON_CPU:
        return x_BHLX
    # The products would copy heads that are not next to each other anyway.
    return x_BHLX.to(torch.float32, memory_format=torch.contiguous_format)


def scaled(products: Tensor, d_k: int, bias: Tensor | None) -> Tensor:
    """Divides products of queries and keys by √d_k and adds what hides positions, if anything does."""
    # Not in one addition: torch rounds its factor to bfloat16, so scores with a bias would differ from those without.
    products.mul_(1 / math.sqrt(d_k))
    return products if bias is None else products.add_(bias)


def attention(
    q_BHLK: Tensor,
    k_BHMK: Tensor,
    v_BHMV: Tensor,
    bias: Tensor | None = None,
    on_weights: OnWeights | None = None,
    dropout: Dropout | None = None,
) -> Tensor:
    """Computes softmax(Q Kᵀ / √d_k + bias) V (eq. 1): x_BHLV; the bias hides positions (`model.rows.Memory`)."""
    weights_BHLM = softmax(scaled(q_BHLK @ k_BHMK.transpose(-1, -2), q_BHLK.shape[-1], bias))
    if on_weights is not None:
        weights_BHLM = on_weights(weights_BHLM)
    if dropout is not None:
        weights_BHLM = dropout(weights_BHLM)
    return weights_BHLM @ v_BHMV


class MultiHeadAttention(nn.Module):
    """Computes softmax(Q Kᵀ / √d_k) V in h heads, concatenates them and projects by W_O; no biases (§3.2.2).

    The heads' weights are stacked in one matrix per projection: `w_q` (H·K, D), `w_kv` (H·K + H·V, D) with the keys
    first, `w_o` (D, H·V). In training each weight of a head is dropped with probability `dropout` (§6.3).
    """

    def __init__(self, d_model: int, n_heads: int, d_k: int, d_v: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_heads, self.d_k, self.d_v = n_heads, d_k, d_v
        self.on_weights: OnWeights | None = None
        self.dropout = Dropout(dropout) if dropout else None
        self.w_q = nn.Linear(d_model, n_heads * d_k, bias=False)
        self.w_kv = nn.Linear(d_model, n_heads * (d_k + d_v), bias=False)
        self.w_o = nn.Linear(n_heads * d_v, d_model, bias=False)
        with torch.no_grad():
            # Xavier initialisation treats keys and values as the two matrices that they are in the paper.
            for weight in (self.w_q.weight, *self.w_kv.weight.split([n_heads * d_k, n_heads * d_v]), self.w_o.weight):
                nn.init.xavier_uniform_(weight)

    def keys_values(self, memory_ND: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Projects the positions to attend to: k_BHMK and v_BHMV, which a decoder caches."""
        k_NX, v_NX = self.w_kv(memory_ND).split([self.n_heads * self.d_k, self.n_heads * self.d_v], dim=-1)
        return layout.by_head(k_NX, self.n_heads), layout.by_head(v_NX, self.n_heads)

    def forward(self, x_ND: Tensor, layout: Layout, memory: Memory) -> Tensor:
        """Attends from each position of `x_ND` to those of `memory`: x_ND -> x_ND."""
        # Keys and values come first: autograd sums the gradients of x_ND in an order that follows from this one, and
        # any other would change the last bits.
        k_BHMK, v_BHMV = self.keys_values(memory.x_ND, memory.layout)
        q_BHLK = layout.by_head(self.w_q(x_ND), self.n_heads)
        q_BHLK, k_BHMK, v_BHMV = (by_size(x_BHLX, q_BHLK.numel()) for x_BHLX in (q_BHLK, k_BHMK, v_BHMV))
        x_BHLV = self.attend(q_BHLK, k_BHMK, v_BHMV, memory.bias)
        return self.w_o(filled(x_BHLV.transpose(1, 2).reshape(-1, self.n_heads * self.d_v).to(x_ND.dtype)))

    def attend(self, q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, bias: Tensor | None) -> Tensor:
        """Attends within each head: x_BHLV."""
        return attention(q_BHLK, k_BHMK, v_BHMV, bias, self.on_weights, self.dropout)
