"""The kernels of `model.kernels.attention`: a program computes a block of rows of one head.

It visits all blocks of the other side that any of its rows sees, so a sentence may begin and end anywhere. Nothing is
added atomically, so results are reproducible. The structure is FlashAttention-2's (Dao 2023, arXiv 2307.08691), whose
own blocks of 128 rows would mostly hold rows of other sentences.

Tensors have `_row` and `_head` elements from one row or head to the next. KC and VC are K and V rounded up to powers of
two. `scale` has the factor log2(e), for powers of two.

Shapes: H heads, K = d_k, V = d_v; R rows of a program, C rows of the other side.
"""

import triton
import triton.language as tl


@triton.jit
def _seen(rows, sentences, offsets, BEFORE: tl.constexpr, AFTER: tl.constexpr):
    """Returns the first row that each row sees and the end of those, and both for all rows."""
    sentence = tl.load(sentences + rows)
    first = tl.load(offsets + sentence)
    last = tl.load(offsets + sentence + 1)
    if BEFORE >= 0:
        first = tl.maximum(first, rows - BEFORE)
    if AFTER >= 0:
        last = tl.minimum(last, rows + AFTER + 1)
    sees = first < last
    return first, last, tl.min(tl.where(sees, first, 2147483647)), tl.max(tl.where(sees, last, 0))


@triton.jit
def _at(tensor, rows, row_stride, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    """Returns the addresses of rows of a head, and which of its columns exist."""
    columns = tl.arange(0, COLUMNS)
    return tensor + rows[:, None].to(tl.int64) * row_stride + columns[None, :], (columns < WIDTH)[None, :]


@triton.jit
def _load(tensor, rows, row_stride, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    address, exists = _at(tensor, rows, row_stride, WIDTH, COLUMNS)
    return tl.load(address) if WIDTH == COLUMNS else tl.load(address, mask=exists, other=0.0)


@triton.jit
def _store(tensor, rows, row_stride, x, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    address, exists = _at(tensor, rows, row_stride, WIDTH, COLUMNS)
    tl.store(address, x.to(tensor.dtype.element_ty), mask=exists)


@triton.jit
def forward(
    q, k, v, x, lse, sentences_q, offsets_k,
    q_row, q_head, k_row, k_head, v_row, v_head, n_rows, scale,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KC: tl.constexpr, VC: tl.constexpr,
    BLOCK: tl.constexpr, BEFORE: tl.constexpr, AFTER: tl.constexpr,
):  # fmt: skip
    """One pass over the keys, with a running maximum and sum of the softmax."""
    head = tl.program_id(0) % H
    rows = tl.program_id(0) // H * BLOCK + tl.arange(0, BLOCK)
    first, last, begin, end = _seen(rows, sentences_q, offsets_k, BEFORE, AFTER)
    q_RK = _load(q + head * q_head, rows, q_row, K, KC)
    highest_R = tl.full([BLOCK], -1e30, tl.float32)
    total_R = tl.zeros([BLOCK], tl.float32)
    x_RV = tl.zeros([BLOCK, VC], tl.float32)
    for at in range(begin // BLOCK * BLOCK, end, BLOCK):
        keys = at + tl.arange(0, BLOCK)
        k_CK = _load(k + head * k_head, keys, k_row, K, KC)
        v_CV = _load(v + head * v_head, keys, v_row, V, VC)
        seen_RC = (keys[None, :] >= first[:, None]) & (keys[None, :] < last[:, None])
        scores_RC = tl.where(seen_RC, tl.dot(q_RK, tl.trans(k_CK)) * scale, float("-inf"))
        higher_R = tl.maximum(highest_R, tl.max(scores_RC, 1))
        weights_RC = tl.exp2(scores_RC - higher_R[:, None])
        shrink_R = tl.exp2(highest_R - higher_R)
        total_R = total_R * shrink_R + tl.sum(weights_RC, 1)
        x_RV = tl.dot(weights_RC.to(v_CV.dtype), v_CV, x_RV * shrink_R[:, None])
        highest_R = higher_R
    total_R = tl.where(total_R > 0, total_R, 1.0)  # a row may see none
    _store(x + head * V, rows, H * V, x_RV / total_R[:, None], V, VC)
    tl.store(lse + head * n_rows + rows, highest_R + tl.log2(total_R))


@triton.jit
def _gradient_rows(x, grad, lse, head, rows, n_rows, H: tl.constexpr, V: tl.constexpr, VC: tl.constexpr):
    """Returns rows of the result's gradient, their softmax's log sums, and the means of their weights' gradients."""
    grad_RV = _load(grad + head * V, rows, H * V, V, VC)
    x_RV = _load(x + head * V, rows, H * V, V, VC)
    mean_R = tl.sum(x_RV.to(tl.float32) * grad_RV.to(tl.float32), 1)
    return grad_RV, tl.load(lse + head * n_rows + rows), mean_R


@triton.jit
def _scores_gradient(a, b, c, d, lse, mean, first, last, others, scale):
    """Returns weights and the gradient of their scores: both of a block's rows by those of the other side's."""
    seen = (others[None, :] >= first[:, None]) & (others[None, :] < last[:, None])
    weights = tl.where(seen, tl.exp2(tl.dot(a, tl.trans(b)) * scale - lse), 0.0)
    return weights, weights * (tl.dot(c, tl.trans(d)) - mean)


@triton.jit
def backward(
    q, k, v, x, lse, grad, grad_q, grad_k, grad_v, sentences_q, sentences_k, offsets_q, offsets_k,
    q_row, q_head, k_row, k_head, v_row, v_head, n_rows, scale, natural_scale,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KC: tl.constexpr, VC: tl.constexpr,
    BLOCK: tl.constexpr, BEFORE: tl.constexpr, AFTER: tl.constexpr,
):  # fmt: skip
    """One half of the programs computes the gradients of keys and values, the other that of queries."""
    half = tl.num_programs(0) // 2
    head = tl.program_id(0) % half % H
    rows = tl.program_id(0) % half // H * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(0) < half:
        first, last, begin, end = _seen(rows, sentences_k, offsets_q, AFTER, BEFORE)
        k_RK = _load(k + head * k_head, rows, k_row, K, KC)
        v_RV = _load(v + head * v_head, rows, v_row, V, VC)
        grad_k_RK = tl.zeros([BLOCK, KC], tl.float32)
        grad_v_RV = tl.zeros([BLOCK, VC], tl.float32)
        for at in range(begin // BLOCK * BLOCK, end, BLOCK):
            queries = at + tl.arange(0, BLOCK)
            q_CK = _load(q + head * q_head, queries, q_row, K, KC)
            grad_CV, lse_C, mean_C = _gradient_rows(x, grad, lse, head, queries, n_rows, H, V, VC)
            weights_RC, grad_RC = _scores_gradient(
                k_RK, q_CK, v_RV, grad_CV, lse_C[None, :], mean_C[None, :], first, last, queries, scale
            )
            grad_v_RV = tl.dot(weights_RC.to(grad_CV.dtype), grad_CV, grad_v_RV)
            grad_k_RK = tl.dot(grad_RC.to(q_CK.dtype), q_CK, grad_k_RK)
        _store(grad_k + head * K, rows, H * K, grad_k_RK * natural_scale, K, KC)
        _store(grad_v + head * V, rows, H * V, grad_v_RV, V, VC)
    else:
        first, last, begin, end = _seen(rows, sentences_q, offsets_k, BEFORE, AFTER)
        q_RK = _load(q + head * q_head, rows, q_row, K, KC)
        grad_RV, lse_R, mean_R = _gradient_rows(x, grad, lse, head, rows, n_rows, H, V, VC)
        grad_q_RK = tl.zeros([BLOCK, KC], tl.float32)
        for at in range(begin // BLOCK * BLOCK, end, BLOCK):
            keys = at + tl.arange(0, BLOCK)
            k_CK = _load(k + head * k_head, keys, k_row, K, KC)
            v_CV = _load(v + head * v_head, keys, v_row, V, VC)
            _, grad_RC = _scores_gradient(
                q_RK, k_CK, grad_RV, v_CV, lse_R[:, None], mean_R[:, None], first, last, keys, scale
            )
            grad_q_RK = tl.dot(grad_RC.to(k_CK.dtype), k_CK, grad_q_RK)
        _store(grad_q + head * K, rows, H * K, grad_q_RK * natural_scale, K, KC)
