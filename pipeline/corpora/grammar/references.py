"""Related words of a sentence (anaphora, verb and object), known from its derivation.

    >>> anaphora(derive(seed=1, number=12))

A pronoun and its antecedent are far apart and related only by meaning, and so are a verb and a fronted object (the dog
that the man sees). The paper's Figures 3 to 5 show heads that connect such words.

A word is located by realising the sentence again with that word marked.
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
    """Returns a second-clause pronoun that refers to the first clause, and its antecedent; None without one."""
    sentence = derivation.sentence
    second, first = sentence.second, sentence.main
    if second is None:
        return None
    pronoun = next(
        (argument for argument in (second.subject, second.object) if isinstance(argument, Pronoun) and argument.noun),
        None,
    )
    phrase = first.object or first.subject
    # A nested clause may mention he or she, whose noun is not in the sentence.
    if pronoun is None or not isinstance(phrase, NounPhrase) or pronoun.noun is not phrase.noun:
        return None
    antecedent = _marked_word(_replaced(sentence, phrase, phrase._replace(noun=_marked(phrase.noun))))
    # The pronoun's clause has no other pronoun.
    *_, last = PRONOUN.finditer(derivation.english, antecedent.end)
    return Span(*last.span()), antecedent


def verb_objects(derivation: Derivation) -> list[tuple[Span, Span]]:
    """Returns English verbs with their direct object's noun, at least LONG_WORDS words apart."""
    references = []
    for verb, noun in _verb_object_marks(derivation.sentence):
        query, key = _marked_word(verb), _marked_word(noun)
        if abs(_word(derivation.english, query) - _word(derivation.english, key)) >= LONG_WORDS:
            references.append((query, key))
    return references


def _verb_object_marks(sentence: Sentence) -> Iterator[tuple[Sentence, Sentence]]:
    """Yields, for each verb with a noun as object, the sentence with the verb marked and with that noun marked."""
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
    """Replaces the object `old`, compared by identity, at any depth."""
    if value is old:
        return new
    if not isinstance(value, tuple):
        return value
    items = [_replaced(item, old, new) for item in value]
    if all(item is before for item, before in zip(items, value, strict=True)):
        return value
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


def _marked(noun: Noun) -> Noun:
    """Marks both forms of a noun at the end, so that articles before it do not change."""
    singular, plural = noun.english
    return noun._replace(english=(singular + MARK, plural + MARK))


def _marked_word(marked: Sentence) -> Span:
    """Returns the marked word, without trailing punctuation."""
    text = Derivation(marked).english
    end = text.index(MARK)
    return Span(max(text.rfind(sign, 0, end) for sign in " '-") + 1, end)


def _word(text: str, span: Span) -> int:
    """Returns a word's index."""
    return text.count(" ", 0, span.begin)
