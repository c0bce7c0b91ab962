"""Which word of a sentence belongs to which: what the grammar meant when it drew the sentence.

    >>> anaphora(derive(seed=1, number=12), "de")

A pronoun and its antecedent are far apart and related by meaning alone, and so are a verb and an object in front of it
(the dog that the man sees); the paper's Figures 3 to 5 show heads that join such words.

Where a word stands is found by realising the sentence once more with that word marked.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from pipeline.corpora.grammar import Derivation
from pipeline.corpora.grammar.lexicon import Noun
from pipeline.corpora.grammar.syntax import Clause, NounPhrase, Pronoun, Sentence

MARK = "\0"
LONG_WORDS = 4
"""A verb and its object at least this far apart are a long-distance pair."""
PRONOUNS = {
    "en": frozenset(["he", "she", "it", "they", "him", "her", "them"]),
    "de": frozenset(["er", "sie", "es", "ihn", "ihm", "ihr"]),
    "fr": frozenset(["il", "elle", "ils", "elles", "le", "la", "lui"]),
}
"""Third-person pronouns; in German and French, those that may depend on the antecedent's gender."""
Language = Literal["en", "de", "fr"]


class Span(NamedTuple):
    """A part of a sentence, in characters: `text[begin:end]`."""

    begin: int
    end: int


class Anaphora(NamedTuple):
    """A pronoun and its antecedent, in English and in the target language."""

    source_pronoun: Span
    source_antecedent: Span
    target_pronoun: Span | None
    """None if the pronoun's form does not depend on its antecedent's gender here (a plural, or French l')."""
    target_antecedent: Span


def anaphora(derivation: Derivation, target: Literal["de", "fr"]) -> Anaphora | None:
    """Returns the pronoun of the second clause that refers into the first, or None if there is none."""
    sentence = derivation.sentence
    second, first = sentence.second, sentence.main
    if second is None:
        return None
    pronoun = next(
        (argument for argument in (second.subject, second.object) if isinstance(argument, Pronoun) and argument.noun),
        None,
    )
    antecedent = first.object or first.subject
    # A clause of its own may speak of he or she, whose noun is no word of the sentence.
    if pronoun is None or not isinstance(antecedent, NounPhrase) or pronoun.noun is not antecedent.noun:
        return None
    marked = _replaced(sentence, antecedent, antecedent._replace(noun=_marked(antecedent.noun)))
    source_antecedent = _marked_word(marked, "en")
    source_pronoun = _pronoun_after(derivation.english, source_antecedent)
    target_antecedent = _marked_word(marked, target)
    if source_pronoun is None:
        return None
    return Anaphora(source_pronoun, source_antecedent, _gendered(derivation, pronoun, target), target_antecedent)


def verb_objects(derivation: Derivation) -> list[tuple[Span, Span]]:
    """Returns the English verbs, each with its direct object's noun, that are at least LONG_WORDS words apart."""
    references = []
    for verb, noun in _verb_object_marks(derivation.sentence):
        query, key = _marked_word(verb, "en"), _marked_word(noun, "en")
        if abs(_word(derivation.english, query) - _word(derivation.english, key)) >= LONG_WORDS:
            references.append((query, key))
    return references


def text_of(derivation: Derivation, language: Language) -> str:
    """Returns the sentence in one of the three languages."""
    return {"en": lambda: derivation.english, "de": lambda: derivation.german, "fr": lambda: derivation.french}[
        language
    ]()


def _verb_object_marks(sentence: Sentence) -> Iterator[tuple[Sentence, Sentence]]:
    """Yields the sentence with a verb marked, and with its object's noun marked, for each verb with such an object."""
    for clause in filter(None, (sentence.main, sentence.second)):
        if isinstance(clause.object, NounPhrase) and clause.object.determiner != "name":
            phrase = clause.object
            marked_phrase = phrase._replace(noun=_marked(phrase.noun))
            yield _with_marked_verb(sentence, clause), _replaced(sentence, phrase, marked_phrase)
    for phrase in _phrases(sentence):
        if phrase.relative and phrase.relative.role == "object":
            marked_phrase = phrase._replace(noun=_marked(phrase.noun))
            yield _with_marked_verb(sentence, phrase.relative.clause), _replaced(sentence, phrase, marked_phrase)


def _with_marked_verb(sentence: Sentence, clause: Clause) -> Sentence:
    english = clause.verb.english
    forms = {name: form + MARK for name, form in english._asdict().items() if name != "particle"}
    verb = clause.verb._replace(english=english._replace(**forms))
    marked: Sentence = _replaced(sentence, clause, clause._replace(verb=verb))
    return marked


def _phrases(value: Any) -> Iterator[NounPhrase]:
    """Yields the noun phrases at any depth."""
    if isinstance(value, NounPhrase):
        yield value
    if isinstance(value, tuple):
        for item in value:
            yield from _phrases(item)


def _replaced(value: Any, old: object, new: object) -> Any:
    """Returns a value in which the object `old` itself, wherever it is, is `new`."""
    if value is old:
        return new
    if not isinstance(value, tuple):
        return value
    items = [_replaced(item, old, new) for item in value]
    if all(item is before for item, before in zip(items, value, strict=True)):
        return value
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


def _marked(noun: Noun) -> Noun:
    """Marks all forms of a noun at their end, so that articles before it stay as they are."""

    def deep(forms: Any) -> Any:
        return forms + MARK if isinstance(forms, str) else tuple(deep(form) for form in forms)

    return noun._replace(english=deep(noun.english), german=deep(noun.german), french=deep(noun.french))


def _marked_word(marked: Sentence, language: Language) -> Span:
    """Returns the word that is marked, without the punctuation after it."""
    text = text_of(Derivation(marked), language)
    end = text.index(MARK)
    return Span(max(text.rfind(sign, 0, end) for sign in " '-") + 1, end)


def _pronoun_after(english: str, antecedent: Span) -> Span | None:
    """Returns the last third-person pronoun after the antecedent: the clause it is in has no other."""
    spans = [span for span in _words(english) if english[slice(*span)].lower() in PRONOUNS["en"]]
    return next((span for span in reversed(spans) if span.begin > antecedent.begin), None)


def _gendered(derivation: Derivation, pronoun: Pronoun, language: Literal["de", "fr"]) -> Span | None:
    """Returns the word of the translation that would be another one if the antecedent had another gender."""
    text, noun = text_of(derivation, language), pronoun.noun
    assert noun is not None
    for gender in "mfn":
        changed = noun._replace(german_gender=gender, french_gender=gender.replace("n", "m"))
        other = _replaced(derivation.sentence, pronoun, pronoun._replace(noun=changed))
        mine, theirs = _words(text), text_of(Derivation(other), language).split(" ")
        for span, word in zip(mine, theirs, strict=False):
            surface = text[slice(*span)]
            if surface != word.strip(".,?"):
                if surface.lower() in PRONOUNS[language]:
                    return span
                break
    return None


def _words(text: str) -> list[Span]:
    """Returns the words of a sentence between spaces, without the punctuation after them."""
    spans, begin = [], 0
    for word in text.split(" "):
        spans.append(Span(begin, begin + len(word.rstrip(".,?"))))
        begin += len(word) + 1
    return spans


def _word(text: str, span: Span) -> int:
    """Returns the number of a word, from 0."""
    return text.count(" ", 0, span.begin)
