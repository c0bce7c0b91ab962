"""Multi-head attention (paper §3.2): equation 1 and the modules.

    SelfAttention: w_qkv -> layout.attend -> w_o            # project, attend, project: the paper's Figure 2

A layout knows which rows of a batch form a sentence (`model.batch`).

Shapes: B batch, L query length, M key length, D = d_model, H heads, K = d_k, V = d_v, X any width. Without B: N query
rows and M key rows of the whole batch (`model.batch`).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from model.batch import EncoderOutput, Layout
from model.cpu import softmax
from model.dropout import Dropout

OnWeights = Callable[[Tensor], Tensor]
"""Observes or replaces weights_BHLM before they are applied to the values."""


def scaled_products(q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
    """Computes Q Kᵀ / √d_k: scores_BHLM."""
    return (q_BHLK @ k_BHMK.transpose(-1, -2)).mul_(1 / math.sqrt(q_BHLK.shape[-1]))


def attention(
    q_BHLK: Tensor,
    k_BHMK: Tensor,
    v_BHMV: Tensor,
    bias: Tensor | None = None,
    on_weights: OnWeights | None = None,
    dropout: OnWeights | None = None,
) -> Tensor:
    """Computes softmax(Q Kᵀ / √d_k + bias) V (eq. 1): x_BHLV. The bias masks positions (`masking_bias`)."""
    return weighted_values(scaled_products(q_BHLK, k_BHMK), v_BHMV, bias, on_weights, dropout)


def weighted_values(
    scores_BHLM: Tensor,
    v_BHMV: Tensor,
    bias: Tensor | None = None,
    on_weights: OnWeights | None = None,
    dropout: OnWeights | None = None,
) -> Tensor:
    """Computes softmax(scores + bias) V: x_BHLV. Overwrites the scores."""
    # Not fused with scaling: torch rounds its factor to bfloat16, so scores would depend on having a bias.
    weights_BHLM = softmax(scores_BHLM if bias is None else scores_BHLM.add_(bias))
    for change in (on_weights, dropout):
        weights_BHLM = weights_BHLM if change is None else change(weights_BHLM)
    return weights_BHLM @ v_BHMV


class ScaledDotProductAttention(nn.Module):
    """Equation 1 within each head (Figure 2, left).

    `dropout` drops attention weights in training (§6.3). `dropout` and `on_weights` require padded batches, since the
    packed kernels never materialise the weights.
    """

    reach: tuple[int, int] | None = (-1, -1)
    """The positions before and after its own that a query sees in packed batches, -1 for all; None if those fail."""

    def __init__(self, dropout: Dropout | None = None) -> None:
        super().__init__()
        self.on_weights: OnWeights | None = None
        self.dropout = dropout

    def forward(
        self,
        q_BHLK: Tensor,
        k_BHMK: Tensor,
        v_BHMV: Tensor,
        bias: Tensor | None = None,
        row_keys_BL: Tensor | None = None,
    ) -> Tensor:
        """Returns x_BHLV; the keys of the queries' rows are for dropout."""
        row_keys_B1L = None if row_keys_BL is None else row_keys_BL[:, None]
        dropout = partial(self.dropout, row_keys=row_keys_B1L) if self.dropout and self.training else None
        return self.attend(q_BHLK, k_BHMK, v_BHMV, bias, dropout)

    def attend(
        self, q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, bias: Tensor | None, dropout: OnWeights | None
    ) -> Tensor:
        """Returns x_BHLV, with the dropout of these rows' weights, if any."""
        return weighted_values(self.scores(q_BHLK, k_BHMK), v_BHMV, bias, self.on_weights, dropout)

    def scores(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        """Returns scores_BHLM, before masking."""
        return scaled_products(q_BHLK, k_BHMK)


class DotProductAttention(ScaledDotProductAttention):
    """softmax(Q Kᵀ) V, not scaled (§3.2.1; Luong et al. 2015). Padded batches only."""

    reach = None

    def scores(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        """Returns scores_BHLM, before masking."""
        return q_BHLK @ k_BHMK.transpose(-1, -2)


class AdditiveAttention(DotProductAttention):
    """softmax(v · tanh(W q + U k)) V, with W, U and v per head (§3.2.1; Bahdanau et al. 2014). Padded batches only.

    For each query-key pair it stores the hidden layer's X = d_k values, where a product stores one.
    """

    def __init__(self, n_heads: int, d_k: int, dropout: Dropout | None = None) -> None:
        super().__init__(dropout)
        self.w_HKX = nn.Parameter(_xavier(n_heads, d_k, d_k))
        self.u_HKX = nn.Parameter(_xavier(n_heads, d_k, d_k))
        self.v_HX1 = nn.Parameter(_xavier(n_heads, d_k, 1))

    def scores(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        """Returns scores_BHLM, before masking, computed in the dtype of the queries."""
        w_HKX, u_HKX, v_HX1 = (weight.to(q_BHLK.dtype) for weight in (self.w_HKX, self.u_HKX, self.v_HX1))
        q_BHL1X, k_BH1MX = (q_BHLK @ w_HKX).unsqueeze(3), (k_BHMK @ u_HKX).unsqueeze(2)
        hidden_BHLMX = (q_BHL1X + k_BH1MX).tanh_()
        return (hidden_BHLMX.flatten(2, 3) @ v_HX1).view(hidden_BHLMX.shape[:-1])


def _xavier(n_heads: int, n_inputs: int, n_outputs: int) -> Tensor:
    """Draws one matrix per head, each Xavier by its own size."""
    weight_HIO = torch.empty(n_heads, n_inputs, n_outputs)
    for weight_IO in weight_HIO:
        nn.init.xavier_uniform_(weight_IO)
    return weight_HIO


class MultiHeadAttention(nn.Module):
    """Projects to queries, keys and values, attends in h heads and projects by W_O (§3.2.2; Figure 2, right).

    W_Q, W_K and W_V of all heads are fused: into `w_qkv` in SelfAttention, into `w_q` and `w_kv` in CrossAttention,
    whose keys come from other rows. There are no biases.
    """

    def __init__(self, d_model: int, n_heads: int, d_k: int, d_v: int, function: ScaledDotProductAttention) -> None:
        super().__init__()
        self.n_heads, self.d_k, self.d_v = n_heads, d_k, d_v
        self.function = function
        self.w_o = projection(n_heads * d_v, d_model)


class SelfAttention(MultiHeadAttention):
    """Self-attention within each sentence."""

    def __init__(self, d_model: int, n_heads: int, d_k: int, d_v: int, function: ScaledDotProductAttention) -> None:
        super().__init__(d_model, n_heads, d_k, d_v, function)
        self.sizes = [n_heads * d_k, n_heads * d_k, n_heads * d_v]
        self.w_qkv = projection(d_model, sum(self.sizes))

    def forward(self, x_ND: Tensor, layout: Layout) -> Tensor:
        """x_ND -> x_ND."""
        q_NX, k_NX, v_NX = self.w_qkv(x_ND).split(self.sizes, dim=-1)
        return self.w_o(layout.attend(q_NX, layout.keys(k_NX, v_NX, self.n_heads), self.function))


class CrossAttention(MultiHeadAttention):
    """Attention from the decoder to the encoder's output."""

    def __init__(self, d_model: int, n_heads: int, d_k: int, d_v: int, function: ScaledDotProductAttention) -> None:
        super().__init__(d_model, n_heads, d_k, d_v, function)
        self.sizes = [n_heads * d_k, n_heads * d_v]
        self.w_q = projection(d_model, n_heads * d_k)
        self.w_kv = projection(d_model, sum(self.sizes))

    def keys(self, encoder_output: EncoderOutput) -> Any:
        """Projects the encoder's output to keys and values; incremental decoding does so once a sentence."""
        k_MX, v_MX = self.w_kv(encoder_output.x_ND).split(self.sizes, dim=-1)
        return encoder_output.layout.keys(k_MX, v_MX, self.n_heads)

    def forward(self, x_ND: Tensor, layout: Layout, keys: Any) -> Tensor:
        """x_ND -> x_ND; `keys` is the result of `keys(encoder_output)`."""
        return self.w_o(layout.attend(self.w_q(x_ND), keys, self.function))


def projection(n_inputs: int, n_outputs: int) -> nn.Linear:
    """Returns one projection, or several fused, initialised like the authors': Xavier, by the size of the fused matrix.

    So W_Q, W_K and W_V of self-attention draw from ±√(6 / (D + 3 D)). The paper states no initialisation; this is
    tensor2tensor's of June 2017 (`uniform_unit_scaling` over `conv1d` of q, k and v, commit 3d9c62f2).
    """
    linear = nn.Linear(n_inputs, n_outputs, bias=False)
    nn.init.xavier_uniform_(linear.weight)
    return linear
