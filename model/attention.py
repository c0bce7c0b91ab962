"""Multi-head attention (paper §3.2): equation 1, how the rows of a batch lie, and the modules.

    SelfAttention: w_qkv -> layout.attend -> w_o            # project, attend, project: the paper's Figure 2

A layout knows which rows of a batch form a sentence, so it splits projected rows into heads and joins them again:

    PaddedLayout     every sentence has as many rows as the longest, so heads are views. CPUs use it.
    PackedLayout     sentences of any lengths follow one another, as the GPUs' kernels for variable lengths take them.

Shapes: B batch, L query length, M key length, D = d_model, H heads, K = d_k, V = d_v; where there is no B, N rows of
queries and M rows of keys (`model.batch`); X columns of any meaning.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.cpu import by_size, softmax

KERNEL_MULTIPLE = 8
"""The kernels of `packed_attention` take heads of a multiple of this many columns."""
KERNEL_MAX_WIDTH = 256
"""The kernels of `packed_attention` take heads of at most this many columns."""
KERNEL_MAX_WIDTH_SMALL_GPUS = 192
"""The same on GPUs with less shared memory than an A100 or H100, whose backward pass is limited."""
OnWeights = Callable[[Tensor], Tensor]
"""Maps weights_BHLM, as soon as they are computed, to those that are used."""


def masking(masked: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the bias that is -inf where `masked` is True and 0 elsewhere."""
    return torch.zeros(masked.shape, dtype=dtype, device=masked.device).masked_fill_(masked, -math.inf)


def scaled(products: Tensor, d_k: int, bias: Tensor | None) -> Tensor:
    """Divides products of queries and keys by √d_k and adds the bias, if there is one."""
    # Not in one addition: torch rounds its factor to bfloat16, so scores with a bias would differ from those without.
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
    """Computes softmax(Q Kᵀ / √d_k + bias) V (eq. 1): x_BHLV; the bias masks positions (`masking`)."""
    weights_BHLM = softmax(scaled(q_BHLK @ k_BHMK.transpose(-1, -2), q_BHLK.shape[-1], bias))
    if on_weights is not None:
        weights_BHLM = on_weights(weights_BHLM)
    if dropout is not None:
        weights_BHLM = dropout(weights_BHLM)
    return weights_BHLM @ v_BHMV


def kernel_width(d_k: int, d_v: int) -> int:
    """Returns the columns of a head as the kernels of `packed_attention` get it."""
    return -(-max(d_k, d_v) // KERNEL_MULTIPLE) * KERNEL_MULTIPLE


def has_kernels(capability: tuple[int, int], d_k: int, d_v: int) -> bool:
    """Whether a GPU of this compute capability can train heads of these sizes by `packed_attention`."""
    limit = KERNEL_MAX_WIDTH if capability in ((8, 0), (9, 0), (10, 0)) else KERNEL_MAX_WIDTH_SMALL_GPUS
    return capability >= (8, 0) and kernel_width(d_k, d_v) <= limit


class PaddedKeys(NamedTuple):
    """Keys and values by head, and the bias for scores with them; None if none is masked."""

    k_BHMK: Tensor
    v_BHMV: Tensor
    bias: Tensor | None


class PackedKeys(NamedTuple):
    """Keys and values by head, and how their rows lie."""

    k_MHK: Tensor
    v_MHV: Tensor
    layout: "PackedLayout"


def packed_attention(
    q_NHK: Tensor, keys: PackedKeys, queries: "PackedLayout", reach: tuple[int, int] = (-1, -1)
) -> Tensor:
    """Computes eq. 1 within each sentence by torch's attention for variable lengths: x_NHV.

    A query sees `reach` positions before and after its own; -1 means all. The kernels run on GPUs (`has_kernels`), in
    bfloat16 or float16. They want d_k = d_v, so the smaller is filled up with zeros, which add nothing to any product.
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
    assert isinstance(x_NHX, Tensor)  # not a tuple, as nothing else is asked for
    return x_NHX[..., :d_v] if d_v < width else x_NHX


class ScaledDotProductAttention(nn.Module):
    """Equation 1 within each head (Figure 2, left).

    In training, `dropout` is applied to the weights (§6.3). It and `on_weights` need the weights themselves, so both
    require padded batches; the packed kernels never form the weights.
    """

    def __init__(self, dropout: nn.Module | None = None) -> None:
        super().__init__()
        self.on_weights: OnWeights | None = None
        self.dropout = dropout

    def forward(self, q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns x_BHLV; the bias masks positions."""
        return attention(q_BHLK, k_BHMK, v_BHMV, bias, self.on_weights, self.dropout)

    def packed(self, q_NHK: Tensor, keys: PackedKeys, queries: "PackedLayout") -> Tensor:
        """Returns x_NHV."""
        return packed_attention(q_NHK, keys, queries)


class Layout(Protocol):
    """How rows form sentences: two forms here, and one position of beam search (`model.decoder`)."""

    def keys(self, k_MX: Tensor, v_MX: Tensor, n_heads: int) -> Any:
        """Splits projected rows into heads, for the `attend` of a layout of the same kind."""

    def attend(self, q_NX: Tensor, keys: Any, function: ScaledDotProductAttention) -> Tensor:
        """Attends from each row to the keys of its sentence, in each head, and concatenates the heads: x_NX."""


class PaddedLayout(NamedTuple):
    """Sentence b has the rows from b·length on; rows beyond its end are padding."""

    batch: int
    length: int
    bias: Tensor | None
    """Attention bias where these rows are keys: -inf where a query must not look, 0 elsewhere; broadcastable to
    (B, H, query length, L). None if nothing is masked. An addition takes a sixth of the time of `masked_fill`."""

    def by_sentence(self, x_NX: Tensor) -> Tensor:
        """Drops the rows left over: x_BLX."""
        return x_NX[: self.batch * self.length].view(self.batch, self.length, -1)

    def by_head(self, x_NX: Tensor, n_heads: int) -> Tensor:
        """Drops the rows left over and splits the columns into heads: x_BHLK."""
        return x_NX[: self.batch * self.length].view(self.batch, self.length, n_heads, -1).transpose(1, 2)

    def keys(self, k_MX: Tensor, v_MX: Tensor, n_heads: int) -> PaddedKeys:
        """Splits projected rows into heads."""
        return PaddedKeys(self.by_head(k_MX, n_heads), self.by_head(v_MX, n_heads), self.bias)

    def attend(self, q_NX: Tensor, keys: PaddedKeys, function: ScaledDotProductAttention) -> Tensor:
        """Attends within each head and concatenates the heads: x_NX. Computes in the type of the keys."""
        n_queries = q_NX.numel()
        k_BHMK, v_BHMV = by_size(keys.k_BHMK, n_queries), by_size(keys.v_BHMV, n_queries)
        q_BHLK = self.by_head(q_NX, k_BHMK.shape[1])
        if q_BHLK.dtype != k_BHMK.dtype:  # the product would copy heads that are not next to each other anyway
            q_BHLK = q_BHLK.to(k_BHMK.dtype, memory_format=torch.contiguous_format)
        x_BLHV = function(q_BHLK, k_BHMK, v_BHMV, keys.bias).transpose(1, 2)
        x_NX = x_BLHV.reshape(-1, x_BLHV.shape[2] * x_BLHV.shape[3]).to(q_NX.dtype)
        left_over = len(q_NX) - len(x_NX)
        return F.pad(x_NX, (0, 0, 0, left_over)) if left_over else x_NX

    def causal(self, x_ND: Tensor) -> "PaddedLayout":
        """Masks later positions (§3.2.3), and so padding from every real one; for scores of the type of `x_ND`."""
        later_TT = torch.ones(self.length, self.length, dtype=torch.bool, device=x_ND.device).triu(1)
        return self._replace(bias=masking(later_TT, x_ND.dtype) if self.length > 1 else None)

    def each(self, change: Callable[[Tensor], Tensor]) -> "PaddedLayout":
        """Changes every tensor."""
        return self if self.bias is None else self._replace(bias=change(self.bias))


class PackedLayout(NamedTuple):
    """Sentence b has the rows from offsets[b] up to offsets[b + 1]."""

    offsets: Tensor
    """int32, (B + 1,)."""
    longest: int
    """At least the length of every sentence."""
    is_causal: bool = False
    """Masks later positions where these rows are keys (§3.2.3)."""

    def keys(self, k_MX: Tensor, v_MX: Tensor, n_heads: int) -> PackedKeys:
        """Splits projected rows into heads."""
        return PackedKeys(k_MX.unflatten(-1, (n_heads, -1)), v_MX.unflatten(-1, (n_heads, -1)), self)

    def attend(self, q_NX: Tensor, keys: PackedKeys, function: ScaledDotProductAttention) -> Tensor:
        """Attends within each head and concatenates the heads: x_NX."""
        return function.packed(q_NX.unflatten(-1, (keys.k_MHK.shape[1], -1)), keys, self).flatten(1)

    def causal(self, x_ND: Tensor) -> "PackedLayout":
        """Masks later positions (§3.2.3)."""
        return self._replace(is_causal=True)

    def each(self, change: Callable[[Tensor], Tensor]) -> "PackedLayout":
        """Changes every tensor."""
        return self._replace(offsets=change(self.offsets))


class EncoderOutput(NamedTuple):
    """The rows that the decoder attends to, and how they lie."""

    x_ND: Tensor
    layout: Layout


class MultiHeadAttention(nn.Module):
    """Projects to queries, keys and values, attends in h heads and projects by W_O (§3.2.2, Figure 2, right).

    W_Q, W_K and W_V of all heads are rows of one matrix, so that they are one product: `w_qkv` of SelfAttention, `w_q`
    and `w_kv` of CrossAttention, whose keys come from other rows. There are no biases.
    """

    def __init__(
        self, d_model: int, n_heads: int, d_k: int, d_v: int, function: ScaledDotProductAttention | None = None
    ) -> None:
        super().__init__()
        self.n_heads, self.d_k, self.d_v = n_heads, d_k, d_v
        self.function = function or ScaledDotProductAttention()
        self.w_o = projection(n_heads * d_v, [d_model])


class SelfAttention(MultiHeadAttention):
    """Attention of sentences to themselves."""

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
    """Attention of the decoder to the encoder's output."""

    def __init__(
        self, d_model: int, n_heads: int, d_k: int, d_v: int, function: ScaledDotProductAttention | None = None
    ) -> None:
        super().__init__(d_model, n_heads, d_k, d_v, function)
        self.sizes = [n_heads * d_k, n_heads * d_v]
        self.w_q = projection(d_model, self.sizes[:1])
        self.w_kv = projection(d_model, self.sizes)

    def keys(self, encoder_output: EncoderOutput) -> Any:
        """Projects the encoder's output to keys and values, which incremental decoding computes once."""
        k_MX, v_MX = self.w_kv(encoder_output.x_ND).split(self.sizes, dim=-1)
        return encoder_output.layout.keys(k_MX, v_MX, self.n_heads)

    def forward(self, x_ND: Tensor, layout: Layout, keys: Any) -> Tensor:
        """x_ND -> x_ND; `keys` are those of the encoder's output."""
        return self.w_o(layout.attend(self.w_q(x_ND), keys, self.function))


def projection(n_inputs: int, outputs: Sequence[int]) -> nn.Linear:
    """Returns one product of several, which Xavier's initialisation treats as the matrices that the paper has."""
    linear = nn.Linear(n_inputs, sum(outputs), bias=False)
    with torch.no_grad():
        for weight in linear.weight.split(list(outputs)):
            nn.init.xavier_uniform_(weight)
    return linear
