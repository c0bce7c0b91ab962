"""The profiles of Table 1 (§4): sizes for a CPU, and larger ones for a GPU.

load_complexity_profile("cpu", overrides=["layers.window=64"])
"""

from collections.abc import Sequence
from pathlib import Path

from pipeline.complexity.settings import LayerSettings, SweepSettings, TimingSettings
from workflows.profiles.changes import FIXED, BaseProfile, checked, merge, named_profile, read_config, read_override


class ComplexityProfile(BaseProfile):
    """All settings of Table 1."""

    layers: LayerSettings = LayerSettings()
    sweep: SweepSettings = SweepSettings()
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
    timing=TimingSettings(device="gpu"),
)
"""On a GPU, kernel launches dominate the time of smaller sizes."""
COMPLEXITY_PROFILES = {profile.name: profile for profile in (CPU, GPU)}


def load_complexity_profile(
    name: str | None = None, *, config: Path | None = None, overrides: Sequence[str] = ()
) -> ComplexityProfile:
    """Loads a profile and applies `config` (TOML) and `overrides` ("key=value").

    The default is the profile named in `config`, or else `gpu` if torch finds one and `cpu` if not. Raises UserError
    for an unknown profile or key, or an invalid value.
    """
    changes = read_config(config)
    name = name or changes.get("profile")
    changes.pop("profile", None)
    if name is None:
        import torch  # slow

        name = GPU.name if torch.cuda.is_available() else CPU.name
    profile = named_profile(COMPLEXITY_PROFILES, name)
    described = profile.model_dump(exclude=FIXED)
    merge(described, changes, where=str(config))
    for override in overrides:
        merge(described, read_override(override), where=f"--set {override}")
    return checked(ComplexityProfile, name=profile.name, **described)
