"""Attention within the sentences of packed rows (paper §3.2.1): an operator, by Triton's kernels on a GPU.

    x_NHV, _ = packed_attention(q_NHK, k_MHK, v_MHV, sentences_N, sentences_M, offsets_q, offsets_k, -1, -1)

Row n is in sentence s = sentences_N[n], and sees the keys from offsets_k[s] to offsets_k[s + 1]; in self-attention only
those at most `before` rows before and `after` rows after it, unless these are -1.

On a CPU the operator computes its definition, the kernels' reference.

Shapes: N query rows, M key rows, H heads, K = d_k, V = d_v.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

LOG2_E = 1.4426950408889634
WIDEST = 256
"""Largest head width."""
CHECKED = 2000
"""Least number of programs of a kernel that are compared with the definition."""
TOLERANCE = 0.02
"""Largest difference from the definition by norm, relative to all rows'; a row's may be five times that, relative to
its own and a mean row's together. A row's is 0.0024 in float16, interpreted, so 0.02 in bfloat16."""


@torch.library.custom_op("aiayn::packed_attention", mutates_args=(), device_types="cpu")
def packed_attention(
    q_NHK: Tensor,
    k_MHK: Tensor,
    v_MHV: Tensor,
    sentences_N: Tensor,
    sentences_M: Tensor,
    offsets_q: Tensor,
    offsets_k: Tensor,
    before: int,
    after: int,
) -> tuple[Tensor, Tensor]:
    """Computes softmax(Q Kᵀ / √d_k) V within each sentence: x_NHV, and log2 of the softmax's sums, lse_HN.

    Rows that see nothing become 0. On a GPU columns must be contiguous, and rows a multiple of 64 as many on both
    sides (`model.batch.PackedSize`). On a CPU lse_HN is 0.
    """
    weights_HNM = _weights(q_NHK, k_MHK, sentences_N, offsets_k, before, after)
    _, lse_HN = _empty_results(q_NHK, v_MHV)
    return torch.einsum("hnm,mhv->nhv", weights_HNM, v_MHV).contiguous(), lse_HN.zero_()


@torch.library.custom_op("aiayn::packed_attention_backward", mutates_args=(), device_types="cpu")
def packed_attention_backward(
    grad_NHV: Tensor,
    q_NHK: Tensor,
    k_MHK: Tensor,
    v_MHV: Tensor,
    x_NHV: Tensor,
    lse_HN: Tensor,
    sentences_N: Tensor,
    sentences_M: Tensor,
    offsets_q: Tensor,
    offsets_k: Tensor,
    before: int,
    after: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of queries, keys and values."""
    weights_HNM = _weights(q_NHK, k_MHK, sentences_N, offsets_k, before, after)
    grad_weights_HNM = torch.einsum("nhv,mhv->hnm", grad_NHV, v_MHV)
    mean_HN1 = (grad_NHV * x_NHV).sum(dim=2).T[:, :, None]
    grad_scores_HNM = weights_HNM * (grad_weights_HNM - mean_HN1) * q_NHK.shape[2] ** -0.5
    grad_q_NHK = torch.einsum("hnm,mhk->nhk", grad_scores_HNM, k_MHK)
    grad_k_MHK = torch.einsum("hnm,nhk->mhk", grad_scores_HNM, q_NHK)
    grad_v_MHV = torch.einsum("hnm,nhv->mhv", weights_HNM, grad_NHV)
    return grad_q_NHK.contiguous(), grad_k_MHK.contiguous(), grad_v_MHV.contiguous()


def _weights(q_NHK: Tensor, k_MHK: Tensor, sentences_N: Tensor, offsets_k: Tensor, before: int, after: int) -> Tensor:
    """Returns weights_HNM of all rows; 0 for those that see nothing."""
    row_N, key_M = torch.arange(len(q_NHK)), torch.arange(len(k_MHK))
    first_N, last_N = offsets_k[sentences_N], offsets_k[sentences_N + 1]
    if before >= 0:
        first_N = first_N.maximum(row_N - before)
    if after >= 0:
        last_N = last_N.minimum(row_N + after + 1)
    seen_NM = (key_M >= first_N[:, None]) & (key_M < last_N[:, None])
    scores_HNM = torch.einsum("nhk,mhk->hnm", q_NHK, k_MHK) * q_NHK.shape[2] ** -0.5
    return scores_HNM.masked_fill(~seen_NM, -math.inf).softmax(dim=-1).nan_to_num(0)


def _empty_results(q_NHK: Tensor, v_MHV: Tensor) -> tuple[Tensor, Tensor]:
    n_rows, n_heads, _ = q_NHK.shape
    lse_HN = q_NHK.new_empty((n_heads, n_rows), dtype=torch.float32)
    return q_NHK.new_empty((n_rows, n_heads, v_MHV.shape[2])), lse_HN


def _empty_like(q_NHK: Tensor, k_MHK: Tensor, v_MHV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return q_NHK.new_empty(q_NHK.shape), k_MHK.new_empty(k_MHK.shape), v_MHV.new_empty(v_MHV.shape)


packed_attention.register_fake(lambda q_NHK, k_MHK, v_MHV, *_: _empty_results(q_NHK, v_MHV))
packed_attention_backward.register_fake(lambda _grad, q_NHK, k_MHK, v_MHV, *_: _empty_like(q_NHK, k_MHK, v_MHV))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, before, after = inputs
    ctx.save_for_backward(*tensors[:3], *output, *tensors[3:])
    ctx.reach = before, after


def _differentiate(ctx: Any, grad_NHV: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    gradients = packed_attention_backward(grad_NHV, *ctx.saved_tensors, *ctx.reach)
    return *gradients, *[None] * 6


packed_attention.register_autograd(_differentiate, setup_context=_save)


@packed_attention.register_kernel("cuda")
def forward_by_kernels(q_NHK: Tensor, k_MHK: Tensor, v_MHV: Tensor, *seen: Any) -> tuple[Tensor, Tensor]:
    """`packed_attention` on a GPU; `seen` are its other arguments."""
    from model.kernels.attention_triton import forward

    sentences_N, _, _, offsets_k, before, after = seen
    (n_rows, n_heads, d_k), sizes = q_NHK.shape, _sizes(q_NHK, v_MHV, before, after)
    x_NHV, lse_HN = _empty_results(q_NHK, v_MHV)
    forward[n_rows // sizes["BLOCK"] * n_heads,](
        q_NHK, k_MHK, v_MHV, x_NHV, lse_HN, sentences_N, offsets_k,
        *_rows_and_heads(q_NHK, k_MHK, v_MHV), n_rows, d_k**-0.5 * LOG2_E, **sizes,
    )  # fmt: skip
    return x_NHV, lse_HN


@packed_attention_backward.register_kernel("cuda")
def backward_by_kernels(
    grad_NHV: Tensor, q_NHK: Tensor, k_MHK: Tensor, v_MHV: Tensor, x_NHV: Tensor, lse_HN: Tensor, *seen: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """`packed_attention_backward` on a GPU; `seen` are its other arguments."""
    from model.kernels.attention_triton import backward

    *rows, before, after = seen
    (n_rows, n_heads, d_k), sizes = q_NHK.shape, _sizes(q_NHK, v_MHV, before, after)
    gradients = _empty_like(q_NHK, k_MHK, v_MHV)
    backward[2 * n_rows // sizes["BLOCK"] * n_heads,](
        q_NHK, k_MHK, v_MHV, x_NHV, lse_HN, grad_NHV.contiguous(), *gradients, *rows,
        *_rows_and_heads(q_NHK, k_MHK, v_MHV), n_rows, d_k**-0.5 * LOG2_E, d_k**-0.5, **sizes,
    )  # fmt: skip
    return gradients


def _sizes(q_NHK: Tensor, v_MHV: Tensor, before: int, after: int) -> dict[str, int]:
    """Returns the kernels' compile-time arguments: the largest blocks that fit into an H100's registers."""
    (_, n_heads, d_k), d_v = q_NHK.shape, v_MHV.shape[2]
    columns = [max(16, 1 << (width - 1).bit_length()) for width in (d_k, d_v)]  # products need 16
    block, n_warps = (64, 4) if max(columns) <= 64 else (32, 4 if max(columns) <= 128 else 8)
    heads = {"H": n_heads, "K": d_k, "V": d_v, "KC": columns[0], "VC": columns[1]}
    return heads | {"BLOCK": block, "BEFORE": before, "AFTER": after, "num_warps": n_warps, "num_stages": 1}


def _rows_and_heads(*tensors: Tensor) -> list[int]:
    """Returns the strides of rows and heads."""
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]


def check(device: str, n_heads: int, d_k: int, d_v: int) -> None:
    """Raises RuntimeError if kernels on a GPU differ from their definition in any row, or whatever Triton raises.

    Compiles those that a run uses, but for windows of encoders: of the decoder's self-attention and of all other. At
    least CHECKED programs of each compute chunks of the same 128 rows, so that all must be equal to the bit.
    """
    times, generator = -(-CHECKED // (2 * n_heads)), torch.Generator().manual_seed(0)
    drawn = [torch.randn(128, n_heads, width, generator=generator).bfloat16() for width in (d_k, d_k, d_v, d_v)]
    queries, keys = [1, 90, 20, 17, 0], [60, 5, 30, 33, 0]
    for sides, reach in (((queries, queries), (-1, 0)), ((queries, keys), (-1, -1))):
        expected = _computed([x.float() for x in drawn], sides, reach)
        found = _computed([x.repeat(times, 1, 1).to(device) for x in drawn], [side * times for side in sides], reach)
        for x, reference in zip(found, expected, strict=True):
            chunks = x.unflatten(0, (times, -1))
            size, error = reference.norm(dim=2), (chunks[0].float().cpu() - reference).norm(dim=2)
            rows_agree = (error <= 5 * TOLERANCE * (size + size.mean())).all() and (chunks == chunks[0]).all()
            if not (rows_agree and error.norm() <= TOLERANCE * size.norm()):
                raise RuntimeError(f"attention by Triton's kernels differs from its definition on {device}")


def _sentences(lengths: list[int]) -> list[Tensor]:
    """Returns sentences_N and offsets. Of five sentences the fourth's rows are left over: in the fifth, without any."""
    sentences_N = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    sentences_N += sentences_N % 5 == 3
    return [sentences_N.int(), F.pad(torch.tensor(lengths).cumsum(0), (1, 0)).int()]


def _computed(drawn: list[Tensor], sides: Sequence[list[int]], reach: tuple[int, int]) -> list[Tensor]:
    q_NHK, k_NHK, v_NHV, grad_NHV = (x.detach().requires_grad_() for x in drawn)
    rows = [x.to(q_NHK.device) for of_both in zip(*map(_sentences, sides), strict=True) for x in of_both]
    x_NHV, _ = packed_attention(q_NHK, k_NHK, v_NHV, *rows, *reach)
    return [x_NHV.detach(), *torch.autograd.grad(x_NHV, (q_NHK, k_NHK, v_NHV), grad_NHV)]
