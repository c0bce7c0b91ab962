"""Default settings for a user's own text, by the number of its training pairs.

    own_profile(163_000).recipes["base"].training.model.d_model      # 256

docs/own-text.md lists them.
"""

import math

from pipeline.settings import VocabularySettings
from workflows.profiles.changes import read_profile
from workflows.profiles.profile import Profile

OWN = "own"
DATA = "text of the user's own"
SIZES = {10_000: "own-10k", 60_000: "multi30k", 300_000: "own-300k", 2_000_000: "own-2m", math.inf: "wmt14"}
"""The files with vocabulary and recipes, by the largest number of pairs that they are used for. The last is the paper's
setup."""
MEASURED_ON = {"multi30k": "Multi30k, 29,000 pairs"}
"""The text that a file's settings were measured on."""


def own_profile(pairs: int, has_word_spaces: bool = True) -> Profile:
    """Returns the profile for a number of training pairs; `has_word_spaces` is False for e.g. Chinese."""
    name = next(name for most_pairs, name in SIZES.items() if pairs <= most_pairs)
    settings, measured_on = read_profile(name), MEASURED_ON.get(name, "")
    vocabulary = VocabularySettings(**settings.get("vocabulary", {}))
    if not has_word_spaces:
        vocabulary, measured_on = vocabulary.without_word_spaces(), ""
    return Profile(
        name=OWN,
        data=DATA,
        own_pairs=pairs,
        measured_on=measured_on,
        corpora={},
        vocabulary=vocabulary,
        recipes=settings["recipes"],
        grid=read_profile("multi30k")["grid"],  # Table 3's settings
    )
