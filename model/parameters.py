"""The parameters of a model: their number (paper Table 3), all of them in one vector, and averages of several (§6.1).

    weights_P = flatten(model)
    weights_P += 1                 # changes every parameter

In one vector, a step of the optimizer or a cast is one operation instead of eighty. Shapes: P parameters.
"""

from collections.abc import Iterable
from functools import cache

import torch
from torch import Tensor, nn

from model.config import TransformerConfig
from model.transformer import Transformer


@cache
def count(config: TransformerConfig) -> int:
    """Counts a model's parameters on torch's meta device, which allocates no memory."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config).parameters())


def flatten(module: nn.Module) -> Tensor:
    """Moves the parameters of a module, in their order, into one vector, of which they become views; returns it."""
    parameters = list(module.parameters())
    with torch.no_grad():
        weights_P = torch.cat([parameter.flatten() for parameter in parameters])
    for parameter, view in zip(parameters, views(weights_P, module), strict=True):
        parameter.data = view
    return weights_P


def views(values_P: Tensor, module: nn.Module) -> list[Tensor]:
    """Splits a vector that has one number for each of a module's parameters: a view in the shape of each of them."""
    parameters = list(module.parameters())
    parts = values_P.split([parameter.numel() for parameter in parameters])
    return [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]


def average(checkpoints: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Averages each weight over the checkpoints' `state_dict()`s, in float64; the result has the first one's dtypes.

    Only one checkpoint is held at a time. Raises ValueError if there are none or if their names differ.
    """
    sums: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    n_checkpoints = 0
    for weights in checkpoints:
        n_checkpoints += 1
        if not sums:
            sums = {name: weight.double() for name, weight in weights.items()}
            dtypes = {name: weight.dtype for name, weight in weights.items()}
            continue
        if weights.keys() != sums.keys():
            raise ValueError(f"checkpoints of different models: {sorted(weights.keys() ^ sums.keys())}")
        for name, weight in weights.items():
            sums[name] += weight
    if not n_checkpoints:
        raise ValueError("no checkpoint to average")
    return {name: (total / n_checkpoints).to(dtypes[name]) for name, total in sums.items()}
