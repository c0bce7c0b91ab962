"""The stage that counts what the layer types of Table 1 cost; what it makes is the same on every machine."""

import torch

from model.layer_types.flop import forward_flop, projected_flop
from model.layer_types.modules import make, make_projected
from model.layer_types.sizes import LAYER_TYPES, LayerType
from pipeline.complexity.counting import counted_flop, products_in_sequence
from pipeline.complexity.dependencies import CONVOLUTIONS, Kernels, longest_path
from pipeline.complexity.figures import Counts, CountsArtifact, LayerCounts, SizeCounts
from pipeline.complexity.settings import LayerSettings, PathSettings, SweepSettings
from pipeline.errors import UserError
from pipeline.store.artifact import Context

SEED = 1


def count(context: Context, settings: LayerSettings, sweep: SweepSettings, paths: PathSettings) -> CountsArtifact:
    """Writes FLOP, sequential operations and longest paths. Raises UserError if the heads do not divide a width."""
    for width in (sweep.width, *sweep.widths):
        if width % settings.n_heads:
            raise UserError(f"{settings.n_heads} heads do not divide a width of {width}; change layers.n_heads")
    torch.manual_seed(SEED)
    counted = []
    for done, layer_type in enumerate(LAYER_TYPES):
        context.progress(done, len(LAYER_TYPES), "layer types")
        counted.append(_layer(layer_type, settings, sweep, paths))
    artifact = CountsArtifact(context.folder)
    artifact.write(Counts(layers=tuple(counted), settings=settings, sweep=sweep, paths=paths))
    return artifact


def _layer(layer_type: LayerType, settings: LayerSettings, sweep: SweepSettings, paths: PathSettings) -> LayerCounts:
    def path(kernels: Kernels) -> dict[int, int]:
        return {n: longest_path(layer_type, settings, n, paths.width, kernels) for n in paths.lengths}

    probe = make(layer_type, settings.sizes(paths.width))
    return LayerCounts(
        name=layer_type,
        sizes=tuple(_size(layer_type, settings, n, d) for n, d in sweep.points(layer_type)),
        projected=tuple(_projected(layer_type, settings, n, d) for n, d in sweep.points(layer_type))
        if layer_type in ("self-attention", "restricted self-attention")
        else (),
        sequential_operations={n: products_in_sequence(probe, n, paths.width) for n in paths.lengths},
        longest_path=path("dilated"),
        longest_path_contiguous=path("contiguous") if layer_type in CONVOLUTIONS else {},
    )


def _size(layer_type: LayerType, settings: LayerSettings, length: int, width: int) -> SizeCounts:
    sizes = settings.sizes(width)
    # A step at a time, computing is quicker than working out shapes.
    device = "cpu" if layer_type == "recurrent" else "meta"
    flop = counted_flop(make(layer_type, sizes), length, width, device)
    return SizeCounts(
        length=length, width=width, counted_flop=flop, formula_flop=forward_flop(layer_type, sizes, length)
    )


def _projected(layer_type: LayerType, settings: LayerSettings, length: int, width: int) -> SizeCounts:
    assert layer_type in ("self-attention", "restricted self-attention")
    sizes = settings.sizes(width)
    flop = counted_flop(make_projected(layer_type, sizes), length, width)
    return SizeCounts(
        length=length, width=width, counted_flop=flop, formula_flop=projected_flop(layer_type, sizes, length)
    )
