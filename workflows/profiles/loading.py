"""Loads a profile with a user's changes."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.corpora.files import FilesSettings
from pipeline.errors import UserError
from workflows.profiles.changes import named_profile, read_config
from workflows.profiles.own_text import DATA, count_pairs, own_profile
from workflows.profiles.profile import Profile, described_with, finished
from workflows.profiles.translation import EMBEDDED, PROFILES


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
    named = name or read_config(config).get("profile")
    if not named and (texts or own_pairs is not None):
        profile = own_profile(count_pairs(texts) if texts else own_pairs or 0)
    else:
        profile = named_profile(PROFILES, named or EMBEDDED.name)
    described = described_with(profile, config)
    if data is not None:
        if not data.is_dir():
            raise UserError(f"--data {data}: there is no such folder")
        readable = [corpus for corpus in described["corpora"].values() if "data" in corpus]
        if not readable:
            why = "which --files names" if profile.own_pairs is not None else "whose text is generated; see --files"
            raise UserError(f"--data has no meaning for profile {profile.name}, {why}")
        for corpus in readable:
            corpus["data"] = data
    if texts:
        described["data"] = DATA
        described["corpora"] = {f"{corpus.source}-{corpus.target}": corpus for corpus in texts}
        described["grid"]["text"].pop("corpora", None)
    return finished(profile, described, overrides)
