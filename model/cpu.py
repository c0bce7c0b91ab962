"""CPU optimisations: dtypes, padded widths and row counts that oneDNN and MKL handle well; results change by rounding.

Shapes: B batch, L length, H heads, N rows, X any width.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

VECTOR_BYTES = 64
"""Size of an AVX-512 register."""
LARGE_NUMBERS = 1 << 18
"""Number of query elements from which attention runs in bfloat16, if the weights are bfloat16."""
ROWS_MULTIPLE = 64
"""bfloat16 products have a multiple of this many rows."""


def softmax(scores: Tensor) -> Tensor:
    """Computes the softmax over the last dimension.

    On CPUs, torch processes rows shorter than a vector register element by element, so they are padded to its width:
    on one AVX-512 core at 2.8 GHz, 6,000 rows of 12 take 0.2 ms instead of 1.3, and the backward pass a third of the
    time.
    """
    missing = VECTOR_BYTES // scores.element_size() - scores.shape[-1]
    if scores.device.type != "cpu" or missing <= 0:
        return torch.softmax(scores, dim=-1)
    return torch.softmax(F.pad(scores, (0, missing), value=-math.inf), dim=-1)[..., :-missing]


def to_fastest_dtype(x_BHLX: Tensor, n_queries: int) -> Tensor:
    """Converts queries, keys or values to the fastest dtype for attention with `n_queries` query elements.

    For small bfloat16 batches on a CPU this is float32: oneDNN compiles a bfloat16 product for each new shape, and an
    attention has six, whose lengths differ between batches. Compiling takes 3 ms on one AVX512-BF16 core; forward and
    backward of 400 rows of width 64 take 0.7 ms in float32. From LARGE_NUMBERS on, bfloat16 saves more than that.
    """
    if x_BHLX.device.type != "cpu" or x_BHLX.dtype != torch.bfloat16 or n_queries >= LARGE_NUMBERS:
        return x_BHLX
    # The products would copy non-contiguous heads anyway.
    return x_BHLX.to(torch.float32, memory_format=torch.contiguous_format)


def padded_row_count(n_rows: int, device: torch.device, dtype: torch.dtype) -> int:
    """Rounds `n_rows` up for bfloat16 products on a CPU; returns it unchanged otherwise.

    oneDNN compiles a kernel for every new row count: 1 to 2 ms and 0.9 MB for each of an update's 30 or so products,
    where an update takes 50 to 400 ms on two cores and row counts differ between batches.
    """
    if device.type != "cpu" or dtype != torch.bfloat16:
        return n_rows
    return -(-n_rows // ROWS_MULTIPLE) * ROWS_MULTIPLE


def pad_rows(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Appends zero rows (PAD_ID, for token ids) to x_NX or x_N, up to `padded_row_count`.

    `dtype` is the dtype of the products to come, by default x's own.
    """
    missing = padded_row_count(x.shape[0], x.device, dtype or x.dtype) - x.shape[0]
    return F.pad(x, (0, 0) * (x.dim() - 1) + (0, missing)) if missing else x
