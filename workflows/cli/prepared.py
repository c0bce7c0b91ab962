"""The settings that text was prepared with, recorded as `profile.json` so that `aiayn train` uses the same.

`aiayn prepare` writes it beside the text, and an experiment into the folder of its run.
"""

import json
import os
from pathlib import Path

from pydantic import ValidationError

from pipeline.errors import UserError
from workflows.names import runs_with
from workflows.profiles.profile import Profile

PROFILE = "profile.json"
NOT_NEEDED = {"corpora", "choice"}
"""The fields that no training needs. Those of a parser's profile are of other types."""


def record(folder: Path, profile: Profile) -> None:
    """Records in `folder` with which settings its text was prepared."""
    temporary = folder / f".making-{os.getpid()}-{PROFILE}"
    temporary.write_text(profile.model_dump_json(exclude=NOT_NEEDED, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, folder / PROFILE)


def recorded(named: Path, dataset: Path) -> Profile | None:
    """Returns the settings recorded for the folder `dataset`, which the user has called `named`.

    They are those of `aiayn prepare`; of the run that the name goes through; or, where a folder in a store is given, of
    the last run that uses it; None without a record. Raises UserError if the record cannot be read.
    """
    folders = [dataset.parent, *runs_with(named, dataset)]
    path = next((folder / PROFILE for folder in folders if (folder / PROFILE).is_file()), None)
    if path is None:
        return None
    try:
        return Profile(corpora={}, **json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, ValidationError):
        raise UserError(
            f"{path} holds no settings that this version can read; remove it and choose some with --profile"
        ) from None
