"""The sizes at which the layer types of Table 1 are compared (paper §4); n is a length, d a width."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from pipeline.complexity.layer_types.sizes import LayerSizes, LayerType
from pipeline.settings import Device, Settings

Size = Annotated[int, Field(ge=1, le=1 << 24)]


class LayerSettings(Settings):
    """What the paper's O(·) calls k and r, and the heads of self-attention with its projections."""

    kernel: int = Field(7, ge=3, le=1 << 24)
    """k: positions that a convolution sees; odd."""
    window: int = Field(32, ge=3, le=1 << 24)
    """r: positions that restricted self-attention sees; with fewer than three, it would see none to the right."""
    n_heads: Size = 8

    @model_validator(mode="after")
    def _valid(self) -> Self:
        self.sizes(self.n_heads)
        return self

    def sizes(self, width: int, dilation: int = 1) -> LayerSizes:
        """Returns the sizes of a layer of this width."""
        return LayerSizes(width, self.kernel, self.window, self.n_heads, dilation)


class SweepSettings(Settings):
    """The two sweeps: n at a fixed d, and d at a fixed n. Exponents are fitted to all sizes of a sweep."""

    lengths: tuple[Size, ...] = (512, 768, 1024, 1536, 2048, 3072, 4096)
    """Values of n, at a d of `width`."""
    width: Size = 256
    widths: tuple[Size, ...] = (256, 384, 512, 768, 1024, 1536, 2048)
    """Values of d, at an n of `length`."""
    separable_widths: tuple[Size, ...] = (2048, 3072, 4096, 6144)
    """Those of the separable convolution: of its k·n·d + n·d², the second term leads by time only at such widths."""
    length: Size = 512

    @model_validator(mode="after")
    def _enough(self) -> Self:
        for name in ("lengths", "widths", "separable_widths"):
            if len(set(getattr(self, name))) < 3:
                raise ValueError(
                    f"{name} has fewer than three sizes; a fitted exponent has no confidence interval then"
                )
        return self

    def over_n(self) -> list[tuple[int, int]]:
        """Returns the pairs (n, d) of the sweep over n, ascending."""
        return [(n, self.width) for n in sorted(set(self.lengths))]

    def over_d(self, layer_type: LayerType) -> list[tuple[int, int]]:
        """Returns the pairs (n, d) of a layer type's sweep over d, ascending."""
        widths = self.separable_widths if layer_type == "separable convolution" else self.widths
        return [(self.length, d) for d in sorted(set(widths))]

    def points(self, layer_type: LayerType) -> list[tuple[int, int]]:
        """Returns all pairs (n, d) of both sweeps, each once."""
        return list(dict.fromkeys(self.over_n() + self.over_d(layer_type)))


class PathSettings(Settings):
    """Where dependencies between positions are counted: by gradients, so at small sizes."""

    lengths: tuple[Size, ...] = Field((16, 32, 64, 128), min_length=1)
    width: Size = 8


class ArgumentSettings(Settings):
    """Sizes at which the paper's verbal claims about layers are timed (§3.2, §4)."""

    length: Size = 512
    """n where k or the number of heads varies."""
    width: Size = 512
    """d there and where r varies."""
    kernels: tuple[Size, ...] = (3, 5, 7, 9, 15, 31)
    """Values of k."""
    windows: tuple[Size, ...] = (32, 64, 128, 256, 512)
    """Values of r, at an n of `window_length`; where r is more than half of it, the full product is computed."""
    window_length: Size = 2048
    heads: tuple[Size, ...] = (1, 2, 4, 8, 16)
    attention_d_k: tuple[Size, ...] = (4, 8, 16, 32, 64, 128)
    """Values of d_k at which the attention functions of §3.2.1 are timed, in `attention_heads` heads."""
    attention_heads: Size = 8
    attention_length: Size = 256


class TimingSettings(Settings):
    """How times are measured."""

    rounds: int = Field(5, ge=2, le=10_000)
    """How often each layer is timed at each size: once a round, so that a disturbance does not hit one alone."""
    least_s: float = Field(0.002, gt=0, le=60)
    """A measurement repeats a pass until it has taken this long."""
    batch: Size = 1
    """Sequences that are computed at once."""
    crossover_widths: tuple[Size, ...] = (64, 128, 256)
    """Values of d at which self-attention and recurrence are compared for growing n."""
    crossover_batches: tuple[Size, ...] = (1, 16)
    crossover_length: int = Field(8192, ge=2, le=1 << 24)
    """The largest n tried."""
    threads: int = Field(1, ge=0, le=1024)
    """CPU threads; 0: as many as this process may use CPUs. In small layers several threads wait more than they
    compute, which hides how the time grows."""
    device: Device = "auto"
    """cpu; gpu: fail without one; auto: a GPU if one is idle."""
