"""The number of parameters of a model (paper Table 3)."""

from functools import cache

import torch

from model.config import TransformerConfig
from model.transformer import Transformer


@cache
def count(config: TransformerConfig) -> int:
    """Counts a model's parameters on torch's meta device, which allocates no memory."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config).parameters())
