"""How many rows a matrix product gets.

All but attention works on positions one by one, so a batch is a matrix of rows, its positions one after the other. On
CPUs in bfloat16 a few rows of nothing follow them: oneDNN compiles a kernel for each number of rows it meets (1 to 2 ms
and 0.9 MB for each of some thirty products of an update, where the update itself takes 50 to 400 ms on two cores), and
no two batches have the same number.

Shapes: N rows, X columns of any meaning.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

MULTIPLE = 64


def rows_for(n_rows: int, device: torch.device, dtype: torch.dtype) -> int:
    """`n_rows`, rounded up to a multiple of 64 where each number of rows costs a compilation."""
    if device.type != "cpu" or dtype != torch.bfloat16:
        return n_rows
    return -(-n_rows // MULTIPLE) * MULTIPLE


def extended(x_NX: Tensor, n_rows: int) -> Tensor:
    """x_NX with rows of zeros after its own, `n_rows` in all."""
    missing = n_rows - x_NX.shape[0]
    return F.pad(x_NX, (0, 0, 0, missing)) if missing else x_NX
