"""Records the settings of prepared text as `profile.json`, from which `aiayn train` reads them.

`aiayn prepare` writes it beside the text, and an experiment into its run's folder.
"""

import json
from pathlib import Path

from pydantic import ValidationError

from pipeline.errors import UserError
from workflows.names import runs_with
from workflows.profiles.profile import Profile
from workflows.runs import write_atomically

PROFILE = "profile.json"
NOT_NEEDED = {"corpora", "choice"}
"""Fields irrelevant to training; in a parser's profile they have other types."""


def record(folder: Path, profile: Profile) -> None:
    """Records in `folder` the settings of its text."""
    write_atomically(folder / PROFILE, profile.model_dump_json(exclude=NOT_NEEDED, indent=2))


def recorded(named: Path, dataset: Path) -> Profile | None:
    """Returns the settings recorded for the folder `dataset`, which the user named `named`.

    The record is `aiayn prepare`'s, or that of the run in the name, or, for a folder in a store, that of the last run
    that uses it. Returns None without a record. Raises UserError if the record cannot be read.
    """
    folders = [dataset.parent, *(run.folder for run in runs_with(named, dataset))]
    path = next((folder / PROFILE for folder in folders if (folder / PROFILE).is_file()), None)
    if path is None:
        return None
    try:
        return Profile(corpora={}, **json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, ValidationError):
        raise UserError(f"this version cannot read the settings in {path}; remove it and choose a --profile") from None
