"""The profiles of Tables 2 and 3, each in a TOML file beside this module.

translation_profile("multi30k").recipes["base"].training.updates      # 5600
"""

from functools import cache
from typing import TYPE_CHECKING, Any

from pipeline.corpora.embedded import EmbeddedSettings
from pipeline.corpora.multi30k import Multi30kSettings
from pipeline.corpora.wmt14 import Wmt14Settings
from workflows.profiles.changes import read_profile
from workflows.profiles.profile import Profile

PROFILES = {"embedded": EmbeddedSettings, "multi30k": Multi30kSettings, "wmt14": Wmt14Settings}
"""The settings of the text, by profile."""
EMBEDDED: Profile
MULTI30K: Profile
WMT14: Profile


@cache
def translation_profile(name: str) -> Profile:
    """Returns one of `PROFILES`, without a user's changes."""
    settings = read_profile(name)
    settings["corpora"] = {pair: PROFILES[name](**text) for pair, text in settings["corpora"].items()}
    return Profile(name=name, **settings)


if not TYPE_CHECKING:  # a type checker knows the profiles above, and no others

    def __getattr__(name: str) -> Any:
        """Reads a profile when it is used."""
        if name.isupper() and name.lower() in PROFILES:
            return translation_profile(name.lower())
        raise AttributeError(f"module {__name__} has no attribute {name}")
