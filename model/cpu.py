"""CPU kernels: dtypes, padded widths and row counts that oneDNN and MKL handle well; results change by rounding only.

Shapes: B batch, L length, H heads, N rows, X columns of any meaning.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

VECTOR_BYTES = 64
"""Size of an AVX-512 register."""
LARGE_NUMBERS = 1 << 18
"""Numbers in the queries from which on attention is in bfloat16, if the weights are of that type."""
ROWS_MULTIPLE = 64
"""In bfloat16 the rows of a product are a multiple of this."""


def softmax(scores: Tensor) -> Tensor:
    """Computes the softmax over the last dimension.

    On CPUs, torch processes rows shorter than a vector register one number at a time, so such rows are padded to the
    register's width: 6 000 rows of 12 then take 0.2 ms instead of 1.3 on one AVX-512 core at 2.8 GHz, and the backward
    pass a third of the time.
    """
    missing = VECTOR_BYTES // scores.element_size() - scores.shape[-1]
    if scores.device.type != "cpu" or missing <= 0:
        return torch.softmax(scores, dim=-1)
    return torch.softmax(F.pad(scores, (0, missing), value=-math.inf), dim=-1)[..., :-missing]


def by_size(x_BHLX: Tensor, n_queries: int) -> Tensor:
    """Converts queries, keys or values, given the numbers in the queries, to the type in which they attend fastest.

    For bfloat16 on a CPU that is float32 in small batches: oneDNN compiles a bfloat16 product for each shape it meets,
    and an attention has six, whose lengths differ from batch to batch. That takes 3 ms on one core with AVX512-BF16,
    where forward and backward of 400 rows of width 64 take 0.7 in float32. From LARGE_NUMBERS on, what bfloat16 saves
    is more than that.
    """
    if x_BHLX.device.type != "cpu" or x_BHLX.dtype != torch.bfloat16 or n_queries >= LARGE_NUMBERS:
        return x_BHLX
    # The products would copy heads that are not next to each other anyway.
    return x_BHLX.to(torch.float32, memory_format=torch.contiguous_format)


def rows_for(n_rows: int, device: torch.device, dtype: torch.dtype) -> int:
    """Rounds `n_rows` up for products in bfloat16 on a CPU.

    oneDNN compiles a kernel for every number of rows it meets (1 to 2 ms and 0.9 MB for each of the thirty or so
    products of an update, which itself takes 50 to 400 ms on two cores), and the number differs from batch to batch.
    """
    if device.type != "cpu" or dtype != torch.bfloat16:
        return n_rows
    return -(-n_rows // ROWS_MULTIPLE) * ROWS_MULTIPLE


def filled(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Appends rows of zeros (so PAD_ID, for token ids) to x_NX or x_N, as many as `rows_for` asks for.

    `dtype` is that of the products to come, by default x's own.
    """
    missing = rows_for(x.shape[0], x.device, dtype or x.dtype) - x.shape[0]
    return F.pad(x, (0, 0) * (x.dim() - 1) + (0, missing)) if missing else x
