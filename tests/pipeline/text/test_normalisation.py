"""pipeline.text.normalisation: what is removed, replaced and composed, by us and by sentencepiece."""

from unicodedata import category, normalize

import pytest
from sentencepiece import SentencePieceProcessor

from pipeline.text.normalisation import normalised
from pipeline.text.vocabulary import load
from tests.support.tiny_checkpoint import make_checkpoint, make_corpus

CHARACTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("\ta\u2028\x85b \r\n c\u00a0?\x0b\r", "a b   c\u00a0?"),
        ("\r", ""),
        (" \u2029\u200b", ""),
        ("\ufeffWie\xadder\u200bauf\0nah\x7fme \x1b[1m", "Wiederaufnahme [1m"),
        ("\u0645\u06cc\u200c\u0631 क्\u200dष", "\u0645\u06cc\u200c\u0631 क्\u200dष"),
        ("r\u030c a\u0301 e\u0302\u0323", "ř á ệ"),
        ("e\xad\u0301 \u212b ﬁ ½", "é Å ﬁ ½"),
        ("\u3164a\u115f\u1160b\u2800 \uffa0", "a b"),
    ],
)
def test_a_line(line: str, wanted: str) -> None:
    assert normalised(line) == wanted


def test_control_and_format_characters_are_removed() -> None:
    """All that Unicode has, except for joiners and signs that are printed (Prepended_Concatenation_Mark).

    Every other character stays or becomes a space, and a second time changes nothing.
    """
    stay = "\u200c\u200d\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
    for character in CHARACTERS:
        removed = category(character) in ("Cc", "Cf") and character not in stay
        inner = normalised(f"a{character}b")
        if category(character) != "Cn":
            assert inner in (("ab", "a b") if removed else (normalize("NFC", f"a{character}b"), "a b"))
        assert normalised(inner) == inner


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceProcessor:
    folder = tmp_path_factory.mktemp("vocabulary")
    return load(make_checkpoint(folder, make_corpus(folder / "corpus"), byte_fallback=True).vocabulary)


def test_vocabularies_normalise_alike(vocabulary: SentencePieceProcessor) -> None:
    """Raw lines have the token ids of normalised ones: changed characters, decomposed ones, marks in any order."""
    changed = [c for c in CHARACTERS[1:] if normalised(f"a{c}b") != f"a{c}b" or normalize("NFD", c) != c]
    words = [f"a{normalize(form, character)}b" for character in changed for form in ("NFC", "NFD")]
    words += ["e\u0302\u0323", "\u1eb9\u0302", "\ufeffa\u2028\u200b\tb\r", "\u0391\u0314\u0301\u0345"]
    assert vocabulary.encode(words) == vocabulary.encode([normalised(word) for word in words])
