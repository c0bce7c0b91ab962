"""The symbols of linearised trees, without nltk, which those who only translate do without (§6.3)."""

import re

WORD_SYMBOL = "XX"
"""Stands for a word and its part-of-speech tag."""
BRACKET = re.compile(r"([()])([^()\s]+)", re.ASCII)
"""An opening or closing bracket, and its label: "(NP"."""
_TAGGED = re.compile(rf"{WORD_SYMBOL}/([^()\s]+)", re.ASCII)


def tagged(tag: str) -> str:
    """Returns the symbol of a word with a tag, where tags are written: "XX/NNP"."""
    return f"{WORD_SYMBOL}/{tag}"


def tag_of(symbol: str) -> str | None:
    """Returns the tag of a symbol that stands for a word, XX where it does not tell; None for other symbols."""
    if symbol == WORD_SYMBOL:
        return WORD_SYMBOL
    tag = _TAGGED.fullmatch(symbol)
    return tag[1] if tag else None
