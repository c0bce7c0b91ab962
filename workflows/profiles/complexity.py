"""The profiles of Table 1 (§4): sizes for a CPU, and larger ones for a GPU.

load_complexity_profile("cpu", overrides=["layers.window=64"])
"""

from collections.abc import Sequence
from pathlib import Path

from pipeline.complexity.settings import LayerSettings, PathSettings, SweepSettings, TimingSettings
from pipeline.errors import UserError
from pipeline.settings import Settings
from workflows.profiles.loading import read_config, read_override
from workflows.profiles.profile import checked, merge


class ComplexityProfile(Settings):
    """All settings that Table 1 is made from."""

    name: str
    layers: LayerSettings = LayerSettings()
    sweep: SweepSettings = SweepSettings()
    paths: PathSettings = PathSettings()
    timing: TimingSettings = TimingSettings()


CPU = ComplexityProfile(name="cpu", timing=TimingSettings(device="cpu"))
GPU = ComplexityProfile(
    name="gpu",
    layers=LayerSettings(window=128),
    sweep=SweepSettings(
        lengths=(4096, 6144, 8192, 12288, 16384),
        width=1024,
        widths=(1024, 1536, 2048, 3072, 4096),
        separable_widths=(2048, 3072, 4096, 6144, 8192),
        length=2048,
    ),
    timing=TimingSettings(device="gpu", crossover_widths=(512, 1024), crossover_length=32768),
)
"""A GPU needs larger sizes before its time is that of the products and not that of starting them."""
COMPLEXITY_PROFILES = {profile.name: profile for profile in (CPU, GPU)}


def load_complexity_profile(
    name: str | None = None, *, config: Path | None = None, overrides: Sequence[str] = ()
) -> ComplexityProfile:
    """Loads a profile and applies `config` (TOML) and `overrides` ("key=value").

    Without a name, it is the one in `config`, or else `gpu` where torch finds one and `cpu` elsewhere. Raises UserError
    for an unknown profile or key, or an invalid value.
    """
    changes = read_config(config)
    chosen = changes.pop("profile", None)
    chosen = name or chosen
    if chosen is None:
        import torch  # slow

        chosen = GPU.name if torch.cuda.is_available() else CPU.name
    if chosen not in COMPLEXITY_PROFILES:
        raise UserError(f"there is no profile {chosen!r}; choose one of {', '.join(COMPLEXITY_PROFILES)}")
    described = COMPLEXITY_PROFILES[chosen].model_dump()
    merge(described, changes, where=str(config))
    for override in overrides:
        merge(described, read_override(override), where=f"--set {override}")
    return checked(ComplexityProfile, **described)
