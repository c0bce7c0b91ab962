"""Sizes at which Table 1's layer types are compared (paper §4); n is a length, d a width."""

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from pipeline.settings import Device, Settings

LayerType = Literal[
    "self-attention", "recurrent", "convolutional", "restricted self-attention", "separable convolution"
]
LAYER_TYPES: tuple[LayerType, ...] = get_args(LayerType)
"""The rows of Table 1, top to bottom, and the separable convolution of §4's text."""
Size = Annotated[int, Field(ge=1, le=1 << 24)]


class LayerSettings(Settings):
    """The paper's k and r."""

    kernel: int = Field(7, ge=3, le=1 << 24)
    """k: a convolution's kernel width; odd, so that it is symmetric."""
    window: int = Field(32, ge=3, le=1 << 24)
    """r: the neighbourhood of restricted self-attention; below three, it would include no later position."""

    @model_validator(mode="after")
    def _valid(self) -> Self:
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel is {self.kernel}; it must be odd, to be symmetric")
        return self


class SweepSettings(Settings):
    """Two sweeps: n at fixed d, and d at fixed n. Exponents are fitted to all sizes of a sweep."""

    lengths: tuple[Size, ...] = (512, 768, 1024, 1536, 2048, 3072, 4096)
    """Values of n, at d = `width`."""
    width: Size = 256
    widths: tuple[Size, ...] = (256, 384, 512, 768, 1024, 1536, 2048)
    """Values of d, at n = `length`."""
    separable_widths: tuple[Size, ...] = (2048, 3072, 4096, 6144)
    """Values of d for the separable convolution: of its k·n·d + n·d², the second term dominates time only there."""
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


class TimingSettings(Settings):
    """Method of timing."""

    rounds: int = Field(5, ge=2, le=10_000)
    """Number of rounds; each layer is timed once per round, so that a disturbance does not affect only one."""
    least_s: float = Field(0.002, gt=0, le=60)
    """Minimum duration of a measurement, which repeats a pass."""
    batch: Size = 1
    """Sequences computed at a time."""
    threads: int = Field(1, ge=0, le=1024)
    """CPU threads; 0: all available CPUs. In small layers several threads mostly wait, which hides how time grows."""
    device: Device = "auto"
    """cpu; gpu: fail without one; auto: a GPU if one is idle."""
