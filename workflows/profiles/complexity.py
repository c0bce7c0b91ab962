"""The profiles of Table 1 (§4): sizes for a CPU, and larger ones for a GPU.

load_complexity_profile("cpu", overrides=["layers.window=64"])
"""

from collections.abc import Sequence
from pathlib import Path

from pipeline.complexity.settings import LayerSettings, SweepSettings, TimingSettings
from workflows.profiles.changes import BaseProfile, checked, known, merge, read_config, read_override, read_profile


class ComplexityProfile(BaseProfile):
    """All settings of Table 1."""

    layers: LayerSettings = LayerSettings()
    sweep: SweepSettings = SweepSettings()
    timing: TimingSettings = TimingSettings()


def load_complexity_profile(
    name: str | None = None, *, config: Path | None = None, overrides: Sequence[str] = ()
) -> ComplexityProfile:
    """Loads a profile and applies `config` (TOML) and `overrides` ("key=value").

    The default is the profile named in `config`, or else `gpu` if torch finds one and `cpu` if not. Raises UserError
    for an unknown profile or key, or an invalid value.
    """
    changes = read_config(config)
    configured = changes.pop("profile", None)
    if (name := name or configured) is None:
        import torch  # slow

        name = "gpu" if torch.cuda.is_available() else "cpu"
    profile = ComplexityProfile(name=name, **read_profile(known(name, ("cpu", "gpu"))))
    described = profile.model_dump(exclude={"name"})
    merge(described, changes, where=str(config))
    for override in overrides:
        merge(described, read_override(override), where=f"--set {override}")
    return checked(ComplexityProfile, name=profile.name, **described)
