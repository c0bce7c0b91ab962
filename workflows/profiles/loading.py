"""Loads a profile with a user's changes."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.corpora.files import FilesSettings
from pipeline.errors import UserError
from pipeline.text.languages import has_word_spaces, tokenizer_of
from workflows.profiles.changes import known, read_config
from workflows.profiles.own_text import DATA, own_profile
from workflows.profiles.profile import Profile, configure, describe, finished
from workflows.profiles.translation import PROFILES, translation_profile


def load_profile(
    name: str | None = None,
    *,
    data: Path | None = None,
    files: Sequence[Path] = (),
    recorded: Profile | None = None,
    config: Path | None = None,
    overrides: Sequence[str] = (),
) -> Profile:
    """Loads a profile and applies, in this order, `files`, `config` (TOML), `data` and `overrides` ("key=value").

    If neither `name` nor `config` names a profile, the default is the one `recorded` with prepared text, else the one
    for the size of the user's text in `files` (workflows.profiles.own_text), else `embedded`. Raises UserError for an
    unknown profile or key, an invalid value, two files for one language pair, or a target language whose scorer is not
    installed.
    """
    texts: dict[str, FilesSettings] = {}
    for path in files:
        text = FilesSettings.load(path)
        tokenizer_of(text.target)  # raises now, not after training
        if (pair := f"{text.source}-{text.target}") in texts:
            raise UserError(f"--files {path}: another file has {pair} already; list all text of a pair in one file")
        texts[pair] = text
    named = name or read_config(config).get("profile")
    if named or not (recorded or texts):
        profile = translation_profile(known(named or "embedded", PROFILES))
    else:
        spaced = all(has_word_spaces(language) for text in texts.values() for language in (text.source, text.target))
        profile = recorded or own_profile(min(text.amount().train_pairs or 0 for text in texts.values()), spaced)
    described = describe(profile)
    if texts:
        described |= {"data": DATA, "corpora": texts}
        described["grid"]["text"].pop("corpora", None)
    configure(described, config)
    if data is not None:
        if not data.is_dir():
            raise UserError(f"--data {data}: there is no such folder")
        readable = [corpus for corpus in described["corpora"].values() if "data" in corpus]
        if not readable:
            why = "its text is that of --files" if texts else "its text is generated; use --files for yours"
            raise UserError(f"--data does not apply to profile {profile.name}: {why}")
        for corpus in readable:
            corpus["data"] = data
    return finished(profile, described, overrides)
