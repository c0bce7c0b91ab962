"""The base class of profiles, and users' changes to their settings.

A user's experiment is a TOML file with a profile's name and the settings that differ from it:

    profile = "multi30k"
    decoding.beam_size = 8
    recipes.base.training.updates = 5000
    grid.rows.F1 = {n_layers = 1, dropout = 0.3}       # an additional row for Table 3
"""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import ValidationError

from pipeline.errors import UserError, mistakes
from pipeline.settings import Settings, flatten, read_toml
from workflows.command_line import typed

SettingsT = TypeVar("SettingsT", bound=Settings)
OPEN = ("grid.rows.", "grid.text.", "pairs.")
"""The prefixes below which users may add new keys."""


class BaseProfile(Settings):
    """All settings of a table."""

    FIXED: ClassVar[set[str]] = {"name", "own_pairs", "measured_on"}
    """The fields that users cannot change, since they identify a profile, or its tables do not read them."""
    name: str

    def in_force(self, changes: str = "") -> str:
        """Returns the settings in force as one line; `changes` are the options that changed some."""
        return self._source() + (f"; changed by {changes}" if changes else "")

    def _source(self) -> str:
        return f"settings of profile {self.name}"


def known(name: str, profiles: Collection[str]) -> str:
    """Returns the name of a profile. Raises UserError if it is not one of `profiles`."""
    if not isinstance(name, str) or name not in profiles:  # in a TOML file, it may have any type
        raise UserError(f"there is no profile {name!r}; choose one of {', '.join(profiles)}")
    return name


def read_profile(name: str) -> dict[str, Any]:
    """Returns a profile's differences from the paper's settings, from its file in this folder.

    A recipe has only its differences from the one that it is `like`.
    """
    settings = read_toml(Path(__file__).with_name(f"{name}.toml"))
    recipes = settings.get("recipes", {})
    for model, recipe in recipes.items():
        if like := recipe.pop("like", None):
            recipes[model] = _combined(recipes[like], recipe)
    return settings


def _combined(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    inner = {key: _combined(settings.get(key, {}), value) for key, value in changes.items() if isinstance(value, dict)}
    return {**settings, **changes, **inner}


def checked(settings: type[SettingsT], within: str = "", **values: Any) -> SettingsT:
    """Validates `values` as settings. Raises UserError for invalid ones, with `within` before their names."""
    try:
        return settings(**values)
    except ValidationError as error:
        raise UserError(mistakes(error, within)) from None


def merge(
    settings: dict[str, Any], changes: Mapping[str, Any], where: str, path: str = "", every: Sequence[str] = ()
) -> None:
    """Merges `changes`, in place. Raises UserError for an unknown key, with the nearest of `every`, and for a group."""
    every = every or [*flatten(settings)]
    for key, value in changes.items():
        full_key = f"{path}{key}"
        if key not in settings and not path.startswith(OPEN):
            wanted = next(iter(flatten({full_key: value})), full_key)
            near = [name for name in every if name.endswith(f".{wanted}")] or get_close_matches(wanted, every)
            known = ", ".join(near[:4] or settings)
            raise UserError(f"{where}: there is no setting {wanted!r}; choose one of {known}; see `aiayn settings`")
        group = settings.get(key)
        if isinstance(group, Settings):
            raise UserError(f"{where}: {full_key} comes from the --files file; change it there")
        if not isinstance(group, dict):
            settings[key] = value
        elif isinstance(value, Mapping):
            merge(group, value, where, f"{full_key}.", every)
        else:
            raise UserError(f"{where}: {full_key} is a group; set one of its settings: {', '.join(group)}")


def changes_typed(config: Path | None, overrides: Sequence[str] | None) -> str:
    """Returns the options that change settings, quoted for a shell."""
    words = ["--config", str(config)] if config else []
    return typed([*words, *(word for override in overrides or () for word in ("--set", override))])


def read_config(path: Path | None) -> dict[str, Any]:
    """Returns the settings in a user's TOML file, none without one. Raises UserError if it is missing or invalid."""
    return read_toml(path) if path else {}


def read_override(override: str) -> dict[str, Any]:
    """Returns `key=value` as nested settings: {"decoding": {"beam_size": 1}}. Raises UserError if it has no "="."""
    key, equals, value = override.partition("=")
    if not equals:
        raise UserError(f"--set {override}: write it as key=value, e.g. --set decoding.beam_size=1")
    nested: dict[str, Any] = {}
    inner = nested
    *parents, last = key.strip().split(".")
    for parent in parents:
        inner = inner.setdefault(parent, {})
    try:
        inner[last] = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:  # text without quotation marks: --set training.dtype=float32
        inner[last] = value.strip()
    return nested
