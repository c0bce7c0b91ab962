"""The profiles of Tables 2 and 3, each in a TOML file beside this module.

translation_profile("multi30k").recipes["base"].training.updates      # 5600
"""

from functools import cache

from pipeline.corpora.embedded import EmbeddedSettings
from pipeline.corpora.multi30k import Multi30kSettings
from pipeline.corpora.wmt14 import Wmt14Settings
from workflows.profiles.changes import read_profile
from workflows.profiles.profile import Profile

PROFILES = {"embedded": EmbeddedSettings, "multi30k": Multi30kSettings, "wmt14": Wmt14Settings}
"""The settings of the text, by profile."""


@cache
def translation_profile(name: str) -> Profile:
    """Returns one of `PROFILES`, without a user's changes."""
    settings = read_profile(name)
    settings["corpora"] = {pair: PROFILES[name](**text) for pair, text in settings["corpora"].items()}
    return Profile(name=name, **settings)


EMBEDDED, MULTI30K, WMT14 = map(translation_profile, PROFILES)
