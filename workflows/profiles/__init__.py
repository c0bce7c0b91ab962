"""Profiles: named sets of settings for an experiment, given as differences from the paper's settings.

A user's own experiment is a TOML file that names a profile and the settings that differ from it:

    profile = "multi30k"
    decoding.beam_size = 8
    recipes.base.training.updates = 5000
    grid.rows.F1 = {n_layers = 1, dropout = 0.3}       # an additional row for Table 3
"""

from workflows.profiles.loading import load_profile, read_config
from workflows.profiles.profile import Grid, Profile, Recipe, checked
from workflows.profiles.translation import EMBEDDED, MULTI30K, PROFILES, WMT14

__all__ = [
    "EMBEDDED",
    "MULTI30K",
    "PROFILES",
    "WMT14",
    "Grid",
    "Profile",
    "Recipe",
    "checked",
    "load_profile",
    "read_config",
]
