"""Whether a language separates its words by spaces, by its code.

    has_word_spaces("de")       # True
    has_word_spaces("zh-TW")    # False

Lengths are counted in characters without them (`pipeline.text.cleaning`), the vocabulary is learned from sampled lines
(`pipeline.text.vocabulary`), and paper BLEU is not defined (`pipeline.evaluation.scoring`).
"""

import re

_WITHOUT = re.compile(
    "(zh|zho|chi|cmn|yue|wuu|nan|hak|lzh|ja|jpn|th|tha|lo|lao|km|khm|my|mya|bur|bo|bod|tib|dz|dzo)([-_.]|$)"
)
"""Codes of ISO 639 of Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan and Dzongkha."""


def has_word_spaces(language: str) -> bool:
    """Whether words are separated by spaces; a script or country after the code does not count."""
    return not _WITHOUT.match(language.lower())
