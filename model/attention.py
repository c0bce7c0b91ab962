"""Multi-head attention (paper §3.2).

Shapes: B batch, L query length, M key length, D = d_model, H heads, K = d_k, V = d_v; where there is no B, N rows of
queries and M rows of keys (`model.batch`); X columns of any meaning.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.batch import Grid, Memory, Packed, Sentences
from model.cache import LayerCache
from model.cpu import by_size, softmax
from model.dropout import Dropout

KERNEL_MULTIPLE = 8
"""The kernels of `packed_attention` take heads of a multiple of this many columns."""
KERNEL_MAX_WIDTH = 256
"""The kernels of `packed_attention` take heads of at most this many columns."""
KERNEL_MAX_WIDTH_SMALL_GPUS = 192
"""The same on GPUs with less shared memory than an A100 or H100, whose backward pass is limited."""
OnWeights = Callable[[Tensor], Tensor]
"""Is given weights_BHLM as soon as they are computed and returns those to use (`pipeline.attention.recording`)."""


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
    """Computes softmax(Q Kᵀ / √d_k + bias) V (eq. 1): x_BHLV; the bias hides positions (`model.batch.Memory`)."""
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


def packed_attention(
    q_NHK: Tensor, k_MHK: Tensor, v_MHV: Tensor, queries: Packed, keys: Packed, reach: tuple[int, int] = (-1, -1)
) -> Tensor:
    """Computes eq. 1 within each sentence by torch's attention for variable lengths: x_NHV.

    A query sees `reach` positions before and after its own; -1 means all. The kernels run on GPUs (`has_kernels`), in
    bfloat16 or float16. They want d_k = d_v, so the smaller is filled up with zeros, which add nothing to any product.
    """
    from torch.nn.attention.varlen import varlen_attn

    d_k, d_v = q_NHK.shape[-1], v_MHV.shape[-1]
    width = kernel_width(d_k, d_v)
    q_NHX, k_MHX, v_MHX = (
        F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x for x in (q_NHK, k_MHK, v_MHV)
    )
    x_NHX = varlen_attn(
        q_NHX,
        k_MHX,
        v_MHX,
        queries.offsets,
        keys.offsets,
        queries.longest,
        keys.longest,
        scale=d_k**-0.5,
        window_size=(reach[0], 0) if keys.causal else reach,
    )
    assert isinstance(x_NHX, Tensor)  # not a tuple, as nothing else is asked for
    return x_NHX[..., :d_v] if d_v < width else x_NHX


class MultiHeadAttention(nn.Module):
    """Computes softmax(Q Kᵀ / √d_k) V in h heads, concatenates them and projects by W_O; no biases (§3.2.2).

    In training each weight of a head is dropped with probability `dropout` (§6.3), which only a `Grid` allows, as it
    does `on_weights`.
    """

    def __init__(self, d_model: int, n_heads: int, d_k: int, d_v: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_heads, self.d_k, self.d_v = n_heads, d_k, d_v
        self.on_weights: OnWeights | None = None
        self.dropout = Dropout(dropout) if dropout else None
        self.w_o = projection(n_heads * d_v, [d_model])

    def attend(self, q_NX: Tensor, k_MX: Tensor, v_MX: Tensor, queries: Sentences, keys: Sentences) -> Tensor:
        """Attends from each row to those of its sentence and projects by W_O: x_ND."""
        if isinstance(queries, Packed) or isinstance(keys, Packed):
            assert isinstance(queries, Packed)
            assert isinstance(keys, Packed)
            q_NHK, k_MHK, v_MHV = (x_NX.unflatten(-1, (self.n_heads, -1)) for x_NX in (q_NX, k_MX, v_MX))
            return self.w_o(self.attend_packed(q_NHK, k_MHK, v_MHV, queries, keys).flatten(1))
        k_BHMK, v_BHMV = (by_size(keys.by_head(x_NX, self.n_heads), q_NX.numel()) for x_NX in (k_MX, v_MX))
        return self.attend_by_head(q_NX, k_BHMK, v_BHMV, queries, keys.bias)

    def attend_by_head(
        self, q_NX: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, queries: Sentences, bias: Tensor | None
    ) -> Tensor:
        """Attends in the type of the keys and values, which are by head, and projects by W_O: x_ND."""
        assert isinstance(queries, Grid)
        q_BHLK = queries.by_head(q_NX, self.n_heads)
        if q_BHLK.dtype != k_BHMK.dtype:  # the product would copy heads that are not next to each other anyway
            q_BHLK = q_BHLK.to(k_BHMK.dtype, memory_format=torch.contiguous_format)
        x_BHLV = self.attend_in_grid(q_BHLK, k_BHMK, v_BHMV, bias)
        x_NX = x_BHLV.transpose(1, 2).reshape(-1, self.n_heads * self.d_v).to(q_NX.dtype)
        left_over = len(q_NX) - len(x_NX)
        return self.w_o(F.pad(x_NX, (0, 0, 0, left_over)) if left_over else x_NX)

    def attend_packed(self, q_NHK: Tensor, k_MHK: Tensor, v_MHV: Tensor, queries: Packed, keys: Packed) -> Tensor:
        """Attends within each head: x_NHV."""
        return packed_attention(q_NHK, k_MHK, v_MHV, queries, keys)

    def attend_in_grid(self, q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, bias: Tensor | None) -> Tensor:
        """Attends within each head: x_BHLV."""
        return attention(q_BHLK, k_BHMK, v_BHMV, bias, self.on_weights, self.dropout)


class SelfAttention(MultiHeadAttention):
    """Attention of sentences to themselves; `w_qkv` has the weights of all queries, keys and values: one product."""

    def __init__(self, d_model: int, n_heads: int, d_k: int, d_v: int, dropout: float = 0.0) -> None:
        super().__init__(d_model, n_heads, d_k, d_v, dropout)
        self.sizes = [n_heads * d_k, n_heads * d_k, n_heads * d_v]
        self.w_qkv = projection(d_model, self.sizes)

    def forward(self, x_ND: Tensor, sentences: Sentences, cache: LayerCache | None = None) -> Tensor:
        """x_ND -> x_ND; with a cache, rows see all that it holds, themselves added, but for what their bias hides."""
        q_NX, k_NX, v_NX = self.w_qkv(x_ND).split(self.sizes, dim=-1)
        if cache is None:
            return self.attend(q_NX, k_NX, v_NX, sentences, sentences)
        assert isinstance(sentences, Grid)
        assert sentences.bias is not None
        k_BHWK, v_BHWV = (sentences.by_head(x_NX, self.n_heads) for x_NX in (k_NX, v_NX))
        k_BHMK, v_BHMV = cache.with_tokens(k_BHWK, v_BHWV, n_tokens=sentences.bias.shape[-1])
        return self.attend_by_head(q_NX, k_BHMK, v_BHMV, sentences, sentences.bias)


class CrossAttention(MultiHeadAttention):
    """Attention of the decoder to the encoder's output; `w_kv` has the weights of all keys and values."""

    def __init__(self, d_model: int, n_heads: int, d_k: int, d_v: int, dropout: float = 0.0) -> None:
        super().__init__(d_model, n_heads, d_k, d_v, dropout)
        self.sizes = [n_heads * d_k, n_heads * d_v]
        self.w_q = projection(d_model, self.sizes[:1])
        self.w_kv = projection(d_model, self.sizes)

    def keys_values(self, memory_MD: Tensor) -> tuple[Tensor, Tensor]:
        """Projects the rows to attend to: k_MX and v_MX, which a decoder caches."""
        k_MX, v_MX = self.w_kv(memory_MD).split(self.sizes, dim=-1)
        return k_MX, v_MX

    def forward(self, x_ND: Tensor, sentences: Sentences, memory: Memory, cache: LayerCache | None = None) -> Tensor:
        """x_ND -> x_ND; a cache has the memory's keys and values already."""
        if cache is None:
            k_MX, v_MX = self.keys_values(memory.x_ND)
            return self.attend(self.w_q(x_ND), k_MX, v_MX, sentences, memory.sentences)
        assert isinstance(memory.sentences, Grid)
        k_BHMK, v_BHMV = cache.memory_k_BHKS.transpose(2, 3), cache.memory_v_BHSV
        return self.attend_by_head(self.w_q(x_ND), k_BHMK, v_BHMV, sentences, memory.sentences.bias)


def projection(n_inputs: int, outputs: Sequence[int]) -> nn.Linear:
    """Makes one product of several, which Xavier's initialisation treats as the matrices that they are in the paper."""
    linear = nn.Linear(n_inputs, sum(outputs), bias=False)
    with torch.no_grad():
        for weight in linear.weight.split(list(outputs)):
            nn.init.xavier_uniform_(weight)
    return linear
