"""Batches as matrices: one row per position, sentence after sentence, with filling rows at the end on some machines.

Everything but attention treats positions independently, so a batch is kept as a matrix x_ND. In bfloat16 on CPUs, its
number of rows is rounded up: oneDNN compiles a kernel for every number of rows it meets (1 to 2 ms and 0.9 MB for each
of the thirty or so products of an update, which itself takes 50 to 400 ms on two cores), and the number differs from
batch to batch.

Shapes: N rows, filling included; B batch, L length, H heads, X columns of any meaning, K = X / H.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

MULTIPLE = 64


class Layout(NamedTuple):
    """The shape of the batch that a matrix of rows holds."""

    batch: int
    length: int

    def by_sentence(self, x_NX: Tensor) -> Tensor:
        """Drops the filling: x_BLX."""
        return x_NX[: self.batch * self.length].view(self.batch, self.length, -1)

    def by_head(self, x_NX: Tensor, n_heads: int) -> Tensor:
        """Drops the filling and splits the columns into heads: x_BHLK."""
        return x_NX[: self.batch * self.length].view(self.batch, self.length, n_heads, -1).transpose(1, 2)


class Memory(NamedTuple):
    """The positions that queries attend to."""

    x_ND: Tensor
    layout: Layout
    bias: Tensor | None
    """Added to the scores: -inf where a query must not look, 0 elsewhere; broadcastable to (B, H, query length, L).
    None if nothing is hidden. An addition takes a sixth of the time of `masked_fill`."""


def rows_for(n_rows: int, device: torch.device, dtype: torch.dtype) -> int:
    """Rounds `n_rows` up to a multiple of 64 on devices where every new number of rows costs a compilation."""
    if device.type != "cpu" or dtype != torch.bfloat16:
        return n_rows
    return -(-n_rows // MULTIPLE) * MULTIPLE


def filled(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Appends filling rows of zeros (so PAD_ID, for token ids) to x_NX or x_N.

    `dtype` is that of the products to come, by default x's own.
    """
    missing = rows_for(x.shape[0], x.device, dtype or x.dtype) - x.shape[0]
    return F.pad(x, (0, 0) * (x.dim() - 1) + (0, missing)) if missing else x
