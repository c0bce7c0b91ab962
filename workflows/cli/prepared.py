"""What `aiayn prepare` leaves for `aiayn train`: the profile the text was prepared with, as `OUT/profile.json`.

Without it `aiayn train` would have to guess; with it both use the same settings unless an option says otherwise.
"""

import json
import os
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from workflows.profiles.profile import Profile

PROFILE = "profile.json"


def remember(folder: Path, profile: Profile) -> None:
    """Writes down which profile the text in `folder` was prepared with."""
    temporary = folder / f".making-{PROFILE}"
    temporary.write_text(json.dumps({"name": profile.name, "own_pairs": profile.own_pairs}) + "\n", encoding="utf-8")
    os.replace(temporary, folder / PROFILE)


def remembered(dataset: Path) -> dict[str, Any]:
    """Returns what `load_profile` needs to load the profile again; nothing if it was not written down.

    Raises UserError if the file is broken.
    """
    path = dataset.parent / PROFILE
    try:
        remembered = json.loads(path.read_text(encoding="utf-8"))
        name, own_pairs = remembered["name"], remembered["own_pairs"]
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{path} is not what `aiayn prepare` writes; remove it and name a profile by --profile"
        ) from None
    return {"name": name} if own_pairs is None else {"own_pairs": own_pairs}
