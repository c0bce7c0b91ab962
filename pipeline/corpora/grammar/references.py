"""Which word of a sentence belongs to which: what the grammar meant when it drew the sentence.

    >>> anaphora(derive(seed=1, number=12))

A pronoun and its antecedent are far apart and related by meaning alone, and so are a verb and an object in front of it
(the dog that the man sees); the paper's Figures 3 to 5 show heads that join such words.

Where a word stands is found by realising the sentence once more with that word marked.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from pipeline.corpora.grammar import Derivation
from pipeline.corpora.grammar.lexicon import Noun
from pipeline.corpora.grammar.syntax import Clause, NounPhrase, Pronoun, Sentence

MARK = "\0"
LONG_WORDS = 4
"""A verb and its object at least this far apart are a long-distance pair."""
PRONOUN = re.compile(r"\b(he|she|it|they|him|her|them)\b", re.IGNORECASE)
"""A third-person pronoun."""


class Span(NamedTuple):
    """A part of a sentence, in characters: `text[begin:end]`."""

    begin: int
    end: int


def anaphora(derivation: Derivation) -> tuple[Span, Span] | None:
    """Returns the pronoun of the second clause that refers into the first, with its antecedent; None without one."""
    sentence = derivation.sentence
    second, first = sentence.second, sentence.main
    if second is None:
        return None
    pronoun = next(
        (argument for argument in (second.subject, second.object) if isinstance(argument, Pronoun) and argument.noun),
        None,
    )
    phrase = first.object or first.subject
    # A clause of its own may speak of he or she, whose noun is no word of the sentence.
    if pronoun is None or not isinstance(phrase, NounPhrase) or pronoun.noun is not phrase.noun:
        return None
    antecedent = _marked_word(_replaced(sentence, phrase, phrase._replace(noun=_marked(phrase.noun))))
    # The clause that the pronoun is in has no other.
    *_, last = PRONOUN.finditer(derivation.english, antecedent.end)
    return Span(*last.span()), antecedent


def verb_objects(derivation: Derivation) -> list[tuple[Span, Span]]:
    """Returns the English verbs, each with its direct object's noun, that are at least LONG_WORDS words apart."""
    references = []
    for verb, noun in _verb_object_marks(derivation.sentence):
        query, key = _marked_word(verb), _marked_word(noun)
        if abs(_word(derivation.english, query) - _word(derivation.english, key)) >= LONG_WORDS:
            references.append((query, key))
    return references


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
    """Marks both forms of a noun at their end, so that an article before it stays as it is."""
    singular, plural = noun.english
    return noun._replace(english=(singular + MARK, plural + MARK))


def _marked_word(marked: Sentence) -> Span:
    """Returns the word that is marked, without the punctuation after it."""
    text = Derivation(marked).english
    end = text.index(MARK)
    return Span(max(text.rfind(sign, 0, end) for sign in " '-") + 1, end)


def _word(text: str, span: Span) -> int:
    """Returns the number of a word, from 0."""
    return text.count(" ", 0, span.begin)
