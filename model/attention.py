"""Multi-head attention (paper §3.2): equation 1, the layouts of a batch, and the modules.

    SelfAttention: w_qkv -> layout.attend -> w_o            # project, attend, project: the paper's Figure 2

A layout knows which rows of a batch form a sentence. It splits projected rows into heads and concatenates heads:

    PaddedLayout     every sentence is padded to the longest, so heads are views. Used on CPUs.
    PackedLayout     sentences are concatenated without padding, for the GPU's variable-length kernels.

Shapes: B batch, L query length, M key length, D = d_model, H heads, K = d_k, V = d_v, X any width. Without B: N query
rows and M key rows of the whole batch (`model.batch`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.cpu import softmax, to_fastest_dtype

KERNEL_MULTIPLE = 8
"""Head width must be a multiple of this in `packed_attention`."""
KERNEL_MAX_WIDTH = 256
"""Largest head width of `packed_attention`."""
KERNEL_MAX_WIDTH_SMALL_GPUS = 192
"""The same on GPUs with less shared memory than an A100 or H100: their backward pass is limited."""
OnWeights = Callable[[Tensor], Tensor]
"""Observes or replaces weights_BHLM before they are applied to the values."""


def masking_bias(masked: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the attention bias: -inf where `masked` is True, else 0."""
    return torch.zeros(masked.shape, dtype=dtype, device=masked.device).masked_fill_(masked, -math.inf)


def scale_scores(products: Tensor, d_k: int, bias: Tensor | None) -> Tensor:
    """Divides query-key products by √d_k in place and adds the optional bias."""
    # Not fused into one addition: torch rounds its factor to bfloat16, so scores would depend on having a bias.
    products.mul_(1 / math.sqrt(d_k))
    return products if bias is None else products.add_(bias)


def attention(
    q_BHLK: Tensor,
    k_BHMK: Tensor,
    v_BHMV: Tensor,
    bias: Tensor | None = None,
    on_weights: OnWeights | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Computes softmax(Q Kᵀ / √d_k + bias) V (eq. 1): x_BHLV. The bias masks positions (`masking_bias`)."""
    scores_BHLM = scale_scores(q_BHLK @ k_BHMK.transpose(-1, -2), q_BHLK.shape[-1], bias)
    return weighted_values(scores_BHLM, v_BHMV, on_weights, dropout)


def weighted_values(
    scores_BHLM: Tensor,
    v_BHMV: Tensor,
    on_weights: OnWeights | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Computes softmax(scores) V: x_BHLV."""
    weights_BHLM = softmax(scores_BHLM)
    if on_weights is not None:
        weights_BHLM = on_weights(weights_BHLM)
    if dropout is not None:
        weights_BHLM = dropout(weights_BHLM)
    return weights_BHLM @ v_BHMV


def kernel_width(d_k: int, d_v: int) -> int:
    """Returns the head width that `packed_attention` pads queries, keys and values to."""
    return -(-max(d_k, d_v) // KERNEL_MULTIPLE) * KERNEL_MULTIPLE


def has_kernels(capability: tuple[int, int], d_k: int, d_v: int) -> bool:
    """Whether `packed_attention` can train heads of these widths on a GPU of this compute capability."""
    limit = KERNEL_MAX_WIDTH if capability in ((8, 0), (9, 0), (10, 0)) else KERNEL_MAX_WIDTH_SMALL_GPUS
    return capability >= (8, 0) and kernel_width(d_k, d_v) <= limit


class PaddedKeys(NamedTuple):
    """Keys and values by head, and their attention bias; None if nothing is masked."""

    k_BHMK: Tensor
    v_BHMV: Tensor
    bias: Tensor | None


class PackedKeys(NamedTuple):
    """Keys and values by head, and the layout of their rows."""

    k_MHK: Tensor
    v_MHV: Tensor
    layout: "PackedLayout"


def packed_attention(
    q_NHK: Tensor, keys: PackedKeys, queries: "PackedLayout", reach: tuple[int, int] = (-1, -1)
) -> Tensor:
    """Computes eq. 1 within each sentence by torch's variable-length attention: x_NHV.

    A query attends to `reach` positions before and after its own; -1 means all. The kernels need a GPU (`has_kernels`),
    bfloat16 or float16, and d_k = d_v: the narrower is padded with zeros, which leave all products unchanged.
    """
    from torch.nn.attention.varlen import varlen_attn

    d_k, d_v = q_NHK.shape[-1], keys.v_MHV.shape[-1]
    width = kernel_width(d_k, d_v)
    q_NHX, k_MHX, v_MHX = (
        F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x for x in (q_NHK, keys.k_MHK, keys.v_MHV)
    )
    x_NHX = varlen_attn(
        q_NHX,
        k_MHX,
        v_MHX,
        queries.offsets,
        keys.layout.offsets,
        queries.longest,
        keys.layout.longest,
        scale=d_k**-0.5,
        window_size=(reach[0], 0) if keys.layout.is_causal else reach,
    )
    assert isinstance(x_NHX, Tensor)  # a tuple only with auxiliary outputs
    return x_NHX[..., :d_v] if d_v < width else x_NHX


class ScaledDotProductAttention(nn.Module):
    """Equation 1 within each head (Figure 2, left).

    `dropout` drops attention weights in training (§6.3). `dropout` and `on_weights` require padded batches, since the
    packed kernels never materialise the weights.
    """

    def __init__(self, dropout: nn.Module | None = None) -> None:
        super().__init__()
        self.on_weights: OnWeights | None = None
        self.dropout = dropout

    def forward(self, q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns x_BHLV."""
        return attention(q_BHLK, k_BHMK, v_BHMV, bias, self.on_weights, self.dropout)

    def packed(self, q_NHK: Tensor, keys: PackedKeys, queries: "PackedLayout") -> Tensor:
        """Returns x_NHV."""
        return packed_attention(q_NHK, keys, queries)


class DotProductAttention(ScaledDotProductAttention):
    """softmax(Q Kᵀ) V, not scaled (§3.2.1; Luong et al. 2015). Padded batches only."""

    def forward(self, q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns x_BHLV."""
        scores_BHLM = q_BHLK @ k_BHMK.transpose(-1, -2)
        scores_BHLM = scores_BHLM if bias is None else scores_BHLM.add_(bias)
        return weighted_values(scores_BHLM, v_BHMV, self.on_weights, self.dropout)

    def packed(self, q_NHK: Tensor, keys: PackedKeys, queries: "PackedLayout") -> Tensor:
        """Raises NotImplementedError: the packed kernels compute scaled dot products."""
        raise NotImplementedError(f"{type(self).__name__} computes padded batches only")


class AdditiveAttention(DotProductAttention):
    """softmax(v · tanh(W q + U k)) V, with W, U and v per head (§3.2.1; Bahdanau et al. 2014). Padded batches only.

    For each query-key pair it stores the hidden layer's X = d_k values, where a product stores one.
    """

    def __init__(self, n_heads: int, d_k: int, dropout: nn.Module | None = None) -> None:
        super().__init__(dropout)
        self.w_HKX = nn.Parameter(_xavier(n_heads, d_k, d_k))
        self.u_HKX = nn.Parameter(_xavier(n_heads, d_k, d_k))
        self.v_HX1 = nn.Parameter(_xavier(n_heads, d_k, 1))

    def forward(self, q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns x_BHLV, computed in the dtype of the queries."""
        w_HKX, u_HKX, v_HX1 = (weight.to(q_BHLK.dtype) for weight in (self.w_HKX, self.u_HKX, self.v_HX1))
        q_BHL1X, k_BH1MX = (q_BHLK @ w_HKX).unsqueeze(3), (k_BHMK @ u_HKX).unsqueeze(2)
        hidden_BHLMX = (q_BHL1X + k_BH1MX).tanh_()
        scores_BHLM = (hidden_BHLMX.flatten(2, 3) @ v_HX1).view(hidden_BHLMX.shape[:-1])
        scores_BHLM = scores_BHLM if bias is None else scores_BHLM.add_(bias)
        return weighted_values(scores_BHLM, v_BHMV, self.on_weights, self.dropout)


def _xavier(n_heads: int, n_inputs: int, n_outputs: int) -> Tensor:
    """Draws one matrix per head, initialised like the model's projections."""
    weight_HIO = torch.empty(n_heads, n_inputs, n_outputs)
    for weight_IO in weight_HIO:
        nn.init.xavier_uniform_(weight_IO)
    return weight_HIO


class Layout(Protocol):
    """The mapping from rows to sentences: padded, packed, or one position of beam search (`model.decoder`)."""

    def keys(self, k_MX: Tensor, v_MX: Tensor, n_heads: int) -> Any:
        """Splits projected keys and values into heads, for `attend` of the same kind of layout."""

    def attend(self, q_NX: Tensor, keys: Any, function: ScaledDotProductAttention) -> Tensor:
        """Attends from each row to its sentence's keys in each head, and concatenates the heads: x_NX."""


class PaddedLayout(NamedTuple):
    """Sentence b occupies `length` rows from b·length on; rows past its end are padding."""

    batch: int
    length: int
    bias: Tensor | None
    """Attention bias for these rows as keys: -inf where masked, else 0; broadcastable to (B, H, query length, L). None
    if nothing is masked. Adding a bias takes a sixth of the time of `masked_fill`."""

    def by_sentence(self, x_NX: Tensor) -> Tensor:
        """Drops leftover rows: x_BLX."""
        return x_NX[: self.batch * self.length].view(self.batch, self.length, -1)

    def by_head(self, x_NX: Tensor, n_heads: int) -> Tensor:
        """Drops leftover rows and splits the columns into heads: x_BHLK."""
        return x_NX[: self.batch * self.length].view(self.batch, self.length, n_heads, -1).transpose(1, 2)

    def keys(self, k_MX: Tensor, v_MX: Tensor, n_heads: int) -> PaddedKeys:
        """Splits projected keys and values into heads."""
        return PaddedKeys(self.by_head(k_MX, n_heads), self.by_head(v_MX, n_heads), self.bias)

    def attend(self, q_NX: Tensor, keys: PaddedKeys, function: ScaledDotProductAttention) -> Tensor:
        """Attends within each head, in the dtype of the keys, and concatenates the heads: x_NX."""
        n_queries = q_NX.numel()
        k_BHMK, v_BHMV = to_fastest_dtype(keys.k_BHMK, n_queries), to_fastest_dtype(keys.v_BHMV, n_queries)
        q_BHLK = self.by_head(q_NX, k_BHMK.shape[1])
        if q_BHLK.dtype != k_BHMK.dtype:  # the product would copy non-contiguous heads anyway
            q_BHLK = q_BHLK.to(k_BHMK.dtype, memory_format=torch.contiguous_format)
        x_BLHV = function(q_BHLK, k_BHMK, v_BHMV, keys.bias).transpose(1, 2)
        x_NX = x_BLHV.reshape(-1, x_BLHV.shape[2] * x_BLHV.shape[3]).to(q_NX.dtype)
        left_over = len(q_NX) - len(x_NX)
        return F.pad(x_NX, (0, 0, 0, left_over)) if left_over else x_NX

    def causal(self, x_ND: Tensor) -> "PaddedLayout":
        """Masks later positions (§3.2.3), and so padding from every real token. The bias has the dtype of `x_ND`."""
        later_TT = torch.ones(self.length, self.length, dtype=torch.bool, device=x_ND.device).triu(1)
        return self._replace(bias=masking_bias(later_TT, x_ND.dtype) if self.length > 1 else None)

    def map(self, function: Callable[[Tensor], Tensor]) -> "PaddedLayout":
        """Applies `function` to every tensor."""
        return self if self.bias is None else self._replace(bias=function(self.bias))


class PackedLayout(NamedTuple):
    """Sentence b occupies rows offsets[b] to offsets[b + 1]."""

    offsets: Tensor
    """int32, (B + 1,)."""
    longest: int
    """At least the length of every sentence."""
    is_causal: bool = False
    """Whether later positions are masked when these rows are keys (§3.2.3)."""

    def keys(self, k_MX: Tensor, v_MX: Tensor, n_heads: int) -> PackedKeys:
        """Splits projected keys and values into heads."""
        return PackedKeys(k_MX.unflatten(-1, (n_heads, -1)), v_MX.unflatten(-1, (n_heads, -1)), self)

    def attend(self, q_NX: Tensor, keys: PackedKeys, function: ScaledDotProductAttention) -> Tensor:
        """Attends within each head and concatenates the heads: x_NX."""
        return function.packed(q_NX.unflatten(-1, (keys.k_MHK.shape[1], -1)), keys, self).flatten(1)

    def causal(self, x_ND: Tensor) -> "PackedLayout":
        """Masks later positions (§3.2.3)."""
        return self._replace(is_causal=True)

    def map(self, function: Callable[[Tensor], Tensor]) -> "PackedLayout":
        """Applies `function` to every tensor."""
        return self._replace(offsets=function(self.offsets))


class EncoderOutput(NamedTuple):
    """The encoder's last hidden states and their layout."""

    x_ND: Tensor
    layout: Layout


class MultiHeadAttention(nn.Module):
    """Projects to queries, keys and values, attends in h heads and projects by W_O (§3.2.2; Figure 2, right).

    W_Q, W_K and W_V of all heads are fused: into `w_qkv` in SelfAttention, into `w_q` and `w_kv` in CrossAttention,
    whose keys come from other rows. There are no biases.
    """

    def __init__(
        self, d_model: int, n_heads: int, d_k: int, d_v: int, function: ScaledDotProductAttention | None = None
    ) -> None:
        super().__init__()
        self.n_heads, self.d_k, self.d_v = n_heads, d_k, d_v
        self.function = function or ScaledDotProductAttention()
        self.w_o = projection(n_heads * d_v, [d_model])


class SelfAttention(MultiHeadAttention):
    """Self-attention within each sentence."""

    def __init__(
        self, d_model: int, n_heads: int, d_k: int, d_v: int, function: ScaledDotProductAttention | None = None
    ) -> None:
        super().__init__(d_model, n_heads, d_k, d_v, function)
        self.sizes = [n_heads * d_k, n_heads * d_k, n_heads * d_v]
        self.w_qkv = projection(d_model, self.sizes)

    def forward(self, x_ND: Tensor, layout: Layout) -> Tensor:
        """x_ND -> x_ND."""
        q_NX, k_NX, v_NX = self.w_qkv(x_ND).split(self.sizes, dim=-1)
        return self.w_o(layout.attend(q_NX, layout.keys(k_NX, v_NX, self.n_heads), self.function))


class CrossAttention(MultiHeadAttention):
    """Attention from the decoder to the encoder's output."""

    def __init__(
        self, d_model: int, n_heads: int, d_k: int, d_v: int, function: ScaledDotProductAttention | None = None
    ) -> None:
        super().__init__(d_model, n_heads, d_k, d_v, function)
        self.sizes = [n_heads * d_k, n_heads * d_v]
        self.w_q = projection(d_model, self.sizes[:1])
        self.w_kv = projection(d_model, self.sizes)

    def keys(self, encoder_output: EncoderOutput) -> Any:
        """Projects the encoder's output to keys and values; incremental decoding does so once a sentence."""
        k_MX, v_MX = self.w_kv(encoder_output.x_ND).split(self.sizes, dim=-1)
        return encoder_output.layout.keys(k_MX, v_MX, self.n_heads)

    def forward(self, x_ND: Tensor, layout: Layout, keys: Any) -> Tensor:
        """x_ND -> x_ND; `keys` is the result of `keys(encoder_output)`."""
        return self.w_o(layout.attend(self.w_q(x_ND), keys, self.function))


def projection(n_inputs: int, outputs: Sequence[int]) -> nn.Linear:
    """Returns several projections fused into one, each with its own Xavier initialisation, as in the paper."""
    linear = nn.Linear(n_inputs, sum(outputs), bias=False)
    with torch.no_grad():
        for weight in linear.weight.split(list(outputs)):
            nn.init.xavier_uniform_(weight)
    return linear
