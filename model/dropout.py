"""Dropout (paper §5.4): on the output of each sub-layer and on the sum of embeddings and positions, nowhere else."""

from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Module):
    """Zeroes each element with probability `p` in training and scales the rest by 1 / (1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x, any shape -> same shape."""
        return F.dropout(x, self.p, self.training) if self.p else x
