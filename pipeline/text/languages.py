"""Compares languages by their codes: BCP 47 tags, ISO 639 codes of two or three letters, locales, in any case.

    tag_of("deu_Latn").language     # "de", as for DE, de-AT, de_DE.UTF-8 and ger
    has_word_spaces("zh-TW")        # False

Codes are stored as the user writes them. Lengths are counted in characters without word spaces
(`pipeline.text.cleaning`), the vocabulary is learned from sampled lines (`pipeline.text.vocabulary`), and paper BLEU is
not defined (`pipeline.evaluation.scoring`).
"""

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langcodes import Language

WITHOUT_WORD_SPACES = {"Hans", "Hant", "Jpan", "Thai", "Laoo", "Khmr", "Mymr", "Tibt"}
"""Scripts by ISO 15924: Chinese, Japanese, Thai, Lao, Khmer, Burmese and Tibetan."""


@cache
def tag_of(code: str) -> "Language":
    """Returns the BCP 47 tag of a language code, or, for another name, a tag whose language is the lower-case name."""
    from langcodes import Language  # not at the top: 50 ms, and models served by MLflow do without it

    try:
        return Language.get(re.split("[.@]", code)[0]).prefer_macrolanguage()
    except ValueError:
        return Language.make(language=code.lower())


def script_of(code: str) -> str | None:
    """Returns the script that a language code names, or else the language's usual one."""
    return tag_of(code).maximize().script


def has_word_spaces(code: str) -> bool:
    """Whether a language separates its words by spaces."""
    return script_of(code) not in WITHOUT_WORD_SPACES
