"""pipeline.corpora.grammar.references: the grammar links the same words as a reader would."""

import pytest

from pipeline.corpora.grammar import derive
from pipeline.corpora.grammar.references import LONG_WORDS, Span, anaphora, verb_objects


def cut(text: str, span: Span) -> str:
    return text[slice(*span)]


@pytest.mark.parametrize(
    ("english", "pronoun", "antecedent"),
    [
        ("The letter is good, and it is sad.", "it", "letter"),
        ("Her old children found the car key because I liked it.", "it", "key"),
        ("Your strong horses are clever, but I feed them.", "them", "horses"),
        ("The proud men did not buy the white shoe, but the old tourist had to throw it away.", "it", "shoe"),
    ],
)
def test_pronouns_and_their_antecedents(english: str, pronoun: str, antecedent: str) -> None:
    """The pronoun is in the second clause, its antecedent in the first."""
    derivation = next(found for number in range(200) if (found := derive(1, number)).english == english)
    spans = anaphora(derivation)
    assert spans
    assert [cut(english, span) for span in spans] == [pronoun, antecedent]


def test_distant_objects() -> None:
    """Objects after other words and objects before their relative clause are found, near ones never."""
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
