"""Loads a profile with a user's changes."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from pipeline.corpora.files import FilesSettings
from pipeline.errors import UserError
from pipeline.settings import Settings
from workflows.profiles.own_text import DATA, count_pairs, own_profile
from workflows.profiles.profile import Profile, change, checked, describe, size_models
from workflows.profiles.translation import EMBEDDED, PROFILES

ProfileT = TypeVar("ProfileT", bound=Profile)


def load_profile(
    name: str | None = None,
    *,
    data: Path | None = None,
    files: Sequence[Path] = (),
    own_pairs: int | None = None,
    config: Path | None = None,
    overrides: Sequence[str] = (),
) -> Profile:
    """Loads a profile and applies, in this order, `config` (TOML), `data`, `files` and `overrides` ("key=value").

    Where neither `name` nor `config` names one, it is `embedded`; for a user's own text, which is `files` or was
    read before as `own_pairs` training pairs, it is the one for so many pairs (workflows.profiles.own_text). Raises
    UserError for an unknown profile or key, or an invalid value.
    """
    texts = [FilesSettings.load(path) for path in files]
    default, profiles = EMBEDDED.name, dict(PROFILES)
    if not (name or read_config(config).get("profile")) and (texts or own_pairs is not None):
        sized = own_profile(count_pairs(texts) if texts else own_pairs or 0)
        default, profiles[sized.name] = sized.name, sized
    draft = Draft(profiles, default, name, config)
    described = draft.described
    if data is not None:
        readable = {pair: corpus for pair, corpus in described["corpora"].items() if "data" in corpus}
        if not readable:
            why = (
                "which --files names" if draft.profile.own_pairs is not None else "whose text is generated; see --files"
            )
            raise UserError(f"--data has no meaning for profile {draft.profile.name}, {why}")
        for corpus in readable.values():
            corpus["data"] = data
    if texts:
        described["data"] = DATA
        described["corpora"] = {f"{corpus.source}-{corpus.target}": corpus for corpus in texts}
        described["grid"]["text"].pop("corpora", None)
    return draft.finished(overrides)


class Draft(Generic[ProfileT]):
    """A profile that is being changed: one of `profiles`, with the changes in the TOML file `config`.

    Its name is `name`, or else that in `config`, or else `default`. Raises UserError for an unknown profile or key.
    """

    def __init__(self, profiles: Mapping[str, ProfileT], default: str, name: str | None, config: Path | None) -> None:
        changes = read_config(config)
        chosen = name or changes.pop("profile", None) or default
        changes.pop("profile", None)
        if chosen not in profiles:
            raise UserError(f"there is no profile {chosen!r}; choose one of {', '.join(profiles)}")
        self.profile = profiles[chosen]
        self.described = describe(self.profile)
        """Its settings as nested dictionaries, which may be changed in place."""
        change(self.described, changes, where=str(config))

    def finished(self, overrides: Sequence[str]) -> ProfileT:
        """Applies `overrides` ("key=value") and returns the profile. Raises UserError for a wrong key or value."""
        described = self.described
        for override in overrides:
            change(described, read_override(override), where=f"--set {override}")
        for pair, corpus in described["corpora"].items():
            if not isinstance(corpus, Settings):  # validate as the profile's own kind of corpus, for a clear message
                kind = type(self.profile.corpora[pair])
                described["corpora"][pair] = checked(kind, within=f"corpora.{pair}.", **corpus)
        size_models(described, where="this experiment")
        return checked(type(self.profile), **described)


def read_config(path: Path | None) -> dict[str, Any]:
    """Returns what a user's TOML file holds; nothing if there is no file. Raises UserError if it cannot be read."""
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
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
