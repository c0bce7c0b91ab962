"""Counts the FLOP of Table 1's layer types (paper §4), with the same result on every machine.

    counted_flop(layer, length=512, width=256)         # of a forward pass, by torch's counter

Shapes: B sequences, L length, D width.
"""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from pipeline.complexity.layers import Recurrent, make
from pipeline.complexity.records import Counts, CountsArtifact, LayerCounts, SizeCounts
from pipeline.complexity.settings import LAYER_TYPES, LayerSettings, SweepSettings
from pipeline.context import Context


def count(context: Context, settings: LayerSettings, sweep: SweepSettings) -> CountsArtifact:
    """Writes the FLOP of all layer types at all sizes."""
    counted = []
    for done, layer_type in enumerate(LAYER_TYPES):
        context.progress(done, len(LAYER_TYPES), "layer types")
        sizes = tuple(
            SizeCounts(length=n, width=d, counted_flop=counted_flop(make(layer_type, settings, d), n, d))
            for n, d in sweep.points(layer_type)
        )
        counted.append(LayerCounts(name=layer_type, sizes=sizes))
    return CountsArtifact(context.folder).write(Counts(layers=tuple(counted), settings=settings, sweep=sweep))


def counted_flop(layer: nn.Module, length: int, width: int) -> int:
    """Counts the FLOP of a forward pass over one sequence by torch's counter.

    Excludes the backward pass, for which torch 2.13 takes a depthwise convolution for a full one and counts k·n·d²
    instead of k·n·d.
    """
    # `meta` tensors have only a shape, so nothing is computed; for one step at a time, computing is faster.
    device = "cpu" if isinstance(layer, Recurrent) else "meta"
    x_BLD = torch.zeros(1, length, width, device=device)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer.to(device)(x_BLD)
    return counter.get_total_flops()
