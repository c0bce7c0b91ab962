"""Normalises lines: alike in training text, evaluation sets, references and input to translate.

Control characters (Unicode's Cc) and format characters (Cf) are removed: soft hyphens, zero-width spaces, byte order
marks and the like, but not printed signs, such as Arabic number signs. Letters are composed (NFC); typographic
characters, such as ligatures, stay. Vocabularies contain the same rules, for other programs that encode with
`joint.model`.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain, permutations
from unicodedata import is_normalized, normalize

_FILLERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters and signs that look like spaces: Hangul fillers, a Braille cell without dots."""
_SEPARATORS = re.compile(f"[\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029{_FILLERS}]+")
_INVISIBLE = re.compile(  # fixed, since Python's Unicode version must not decide; without U+200C and U+200D
    "[\0-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]+"
)


def normalised(line: str) -> str:
    """Normalises a line for training, evaluation and translation.

    Line separators, control characters that other programs treat as line ends or columns (tab, "\\r", U+0085,
    U+2028, ...) and fillers become one space; leading and trailing spaces are dropped. The joiners U+200C and U+200D
    stay, which scripts need, and spaces within, such as the no-break space before a French "?".
    """
    if not line.isprintable() or (not line.isascii() and any(filler in line for filler in _FILLERS)):
        line = _INVISIBLE.sub("", _SEPARATORS.sub(" ", line))
    return normalize("NFC", line).strip()


@cache
def sentencepiece_rules() -> tuple[str, ...]:
    """Returns lines of a `normalization_rule_tsv`: code points, a tab, and the code points that replace them."""

    return tuple("\t".join(" ".join(f"{ord(c):X}" for c in text) for text in rule) for rule in _rules())


def _rules() -> Iterator[tuple[str, str]]:
    for character in map(chr, chain(range(1, 0xD800), range(0xE000, 0x30000), range(0xE0000, 0xE0080))):
        if character.isprintable() and is_normalized("NFD", character) and character not in _FILLERS:
            continue
        composed = normalize("NFC", _INVISIBLE.sub("", _SEPARATORS.sub(" ", character)))
        if composed != character:
            yield character, composed
            continue
        decomposed = normalize("NFD", character)
        for marks in permutations(decomposed[1:]):
            for n in range(len(decomposed)):  # of which are composed already
                text = normalize("NFC", decomposed[0] + "".join(marks[:n])) + "".join(marks[n:])
                if text != character and normalize("NFC", text) == character:
                    yield text, character
