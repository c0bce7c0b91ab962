"""Parameters of a model, counted without building it in memory (paper Table 3)."""

from functools import cache

import torch

from model.config import TransformerConfig
from model.transformer import Transformer


@cache
def count(config: TransformerConfig) -> int:
    """Parameters of the model, built without memory."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config).parameters())
