"""The words that the grammar says belong together are those that a reader would join."""

import pytest

from pipeline.corpora.grammar import derive
from pipeline.corpora.grammar.references import (
    LONG_WORDS,
    Anaphora,
    Span,
    anaphora,
    text_of,
    verb_objects,
)


def cut(text: str, span: Span | None) -> str | None:
    return text[slice(*span)] if span else None


def words_of(number: int, target: str) -> tuple[str, ...]:
    """The sentence of a derivation, its pronoun and antecedent, and those of its translation."""
    derivation = derive(1, number)
    spans = anaphora(derivation, target)  # type: ignore[arg-type]
    assert isinstance(spans, Anaphora)
    translation = text_of(derivation, target)  # type: ignore[arg-type]
    return (
        derivation.english,
        cut(derivation.english, spans.source_pronoun),
        cut(derivation.english, spans.source_antecedent),
        cut(translation, spans.target_pronoun),
        cut(translation, spans.target_antecedent),
    )  # type: ignore[return-value]


def number_of(english: str) -> int:
    return next(number for number in range(200) if derive(1, number).english == english)


@pytest.mark.parametrize(
    ("english", "german", "french"),
    [
        ("The letter is good, and it is sad.", ("it", "letter", "er", "Brief"), ("it", "letter", "elle", "lettre")),
        (
            "Her old children found the car key because I liked it.",
            ("it", "key", "ihn", "Autoschlüssel"),
            ("it", "key", None, "clé"),
        ),
        (
            "Your strong horses are clever, but I feed them.",
            ("them", "horses", None, "Pferde"),
            ("them", "horses", None, "chevaux"),
        ),
        (
            "The proud men did not buy the white shoe, but the old tourist had to throw it away.",
            ("it", "shoe", "ihn", "Schuh"),
            ("it", "shoe", "la", "chaussure"),
        ),
    ],
)
def test_pronouns_and_their_antecedents(english: str, german: tuple[str], french: tuple[str]) -> None:
    """In both languages; plurals and French l' have no gender, so nothing is said of them."""
    number = number_of(english)
    assert words_of(number, "de")[1:] == german
    assert words_of(number, "fr")[1:] == french


def test_distant_objects() -> None:
    """An object with words before it, and one in front of its relative clause; never a near one."""
    pairs = {}
    for number in range(400):
        derivation = derive(1, number)
        text = derivation.english
        for verb, noun in verb_objects(derivation):
            distance = text.count(" ", 0, noun.begin) - text.count(" ", 0, verb.begin)
            assert abs(distance) >= LONG_WORDS
            pairs[text] = (cut(text, verb), cut(text, noun), distance)
    relative = "The gardener whom the small teacher sees comes to the park."
    assert pairs[relative] == ("sees", "gardener", -5)
    assert pairs["I sent the man the bottle."] == ("sent", "bottle", 4)
    assert "The letter is good, and it is sad." not in pairs
