"""Dropout (paper §5.4): on the output of each sub-layer and on the sum of embeddings and positions, nowhere else."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = 1 << 16


class Dropout(nn.Module):
    """Zeroes each element with probability `p` in training and scales the rest by 1 / (1 - p).

    On CPUs 64 random bits decide on four elements, so `p` is rounded to a 65 536th (0.1 to 0.10001), and the scale is
    that of the rounded `p`. F.dropout draws a whole number for each: 1.5 ms for 192 000 elements on one AVX-512 core at
    2.8 GHz, against 0.35 ms.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x, any shape -> same shape."""
        if not (self.training and self.p):
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        dropped_levels = round(self.p * LEVELS)
        n = x.numel()
        bits = torch.empty((n + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:n]
        kept = torch.empty(x.shape, dtype=x.dtype)
        torch.ge(bits.view(x.shape), dropped_levels - LEVELS // 2, out=kept)
        return x * kept.mul_(LEVELS / (LEVELS - dropped_levels))
