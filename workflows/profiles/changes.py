"""What all profiles have in common: a name, and users' changes to their settings.

A user's own experiment is a TOML file that names a profile and the settings that differ from it:

    profile = "multi30k"
    decoding.beam_size = 8
    recipes.base.training.updates = 5000
    grid.rows.F1 = {n_layers = 1, dropout = 0.3}       # an additional row for Table 3
"""

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.settings import Settings

SettingsT = TypeVar("SettingsT", bound=Settings)
OPEN = ("grid.rows.", "grid.text.", "pairs.")
"""The prefixes below which users may add new keys."""
FIXED = {"name", "own_pairs", "measured_on"}
"""The fields of a profile that say which profile it is; no change reaches them."""


class BaseProfile(Settings):
    """All settings that a table is made from."""

    name: str

    def in_force(self, changes: str = "") -> str:
        """Returns a line that says which settings are in force; `changes` are the options that change some."""
        return self._source() + (f"; changed by {changes}" if changes else "")

    def _source(self) -> str:
        return f"settings of profile {self.name}"


ProfileT = TypeVar("ProfileT", bound=BaseProfile)


def named_profile(profiles: Mapping[str, ProfileT], name: str) -> ProfileT:
    """Returns the profile of a name. Raises UserError if there is none."""
    if not isinstance(name, str) or name not in profiles:  # a TOML file may hold anything
        raise UserError(f"there is no profile {name!r}; choose one of {', '.join(profiles)}")
    return profiles[name]


def checked(settings: type[SettingsT], within: str = "", **values: Any) -> SettingsT:
    """Makes settings of the given values. If they are invalid, raises UserError with their names after `within`."""
    try:
        return settings(**values)
    except ValidationError as error:
        raise UserError(one_line(error, within)) from None


def one_line(error: ValidationError, within: str = "") -> str:
    """Formats what pydantic found wrong as one line."""
    mistakes = []
    for mistake in error.errors():
        where = within + ".".join(str(part) for part in mistake["loc"]) or "settings"
        mistakes.append(f"{where}: {mistake['msg'].removeprefix('Value error, ')}")
    return "; ".join(mistakes)


def merge(settings: dict[str, Any], changes: Mapping[str, Any], where: str, path: str = "") -> None:
    """Merges `changes` into `settings`, in place. Raises UserError if a key does not exist or names a group."""
    for key, value in changes.items():
        full_key = f"{path}{key}"
        if key not in settings and not path.startswith(OPEN):
            raise UserError(f"{where}: there is no setting {full_key!r}; here are {', '.join(settings)}")
        group = settings.get(key)
        if isinstance(group, Settings):
            raise UserError(f"{where}: {full_key} is described by the file of --files; change it there")
        if not isinstance(group, dict):
            settings[key] = value
        elif isinstance(value, Mapping):
            merge(group, value, where, f"{full_key}.")
        else:
            raise UserError(f"{where}: {full_key} is a group of settings, not one; in it are {', '.join(group)}")


def changes_typed(config: Path | None, overrides: Sequence[str] | None) -> str:
    """Returns the options that change settings, as a shell takes them."""
    words = ["--config", str(config)] if config else []
    return shlex.join([*words, *(word for override in overrides or () for word in ("--set", override))])


def read_config(path: Path | None) -> dict[str, Any]:
    """Returns what a user's TOML file holds; nothing if there is no file. Raises UserError if it cannot be read."""
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a byte order mark
    except FileNotFoundError:
        raise UserError(f"--config {path}: there is no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"--config {path}: not valid TOML ({error})") from None


def read_override(override: str) -> dict[str, Any]:
    """Returns `key=value` as nested settings: {"decoding": {"beam_size": 1}}. Raises UserError if it is not that."""
    key, equals, value = override.partition("=")
    if not equals:
        raise UserError(f"--set {override}: write it as key=value, e.g. --set decoding.beam_size=1")
    nested: dict[str, Any] = {}
    inner = nested
    *parents, last = key.strip().split(".")
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[last] = _value(value.strip())
    return nested


def _value(text: str) -> Any:
    """Parses a TOML value, else returns the text itself: `--set seed=3`, `--set training.dtype=float32`."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
