"""Checkpoint averaging (paper §6.1)."""

from collections.abc import Iterable

import torch
from torch import Tensor


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
