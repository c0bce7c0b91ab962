"""Replaces each English word by one German or French word: a baseline for translations to beat."""

import re
from functools import cache

from pipeline.corpora.grammar import english, french, german
from pipeline.corpora.grammar.lexicon import Verb, lexicon


def word_by_word(sentence: str, language: str) -> str:
    """Replaces each word of `sentence` by its most common form in `language` ("de" or "fr"), in English order.

    Words without a counterpart (does) are dropped; unknown words stay. Raises KeyError for other languages.
    """
    words = dictionary({"de": 0, "fr": 1}[language])
    translated = [words.get(word.lower(), word) for word in re.findall(r"[\w-]+|[,.?]", sentence.replace("'s", ""))]
    text = re.sub(r" ([,.])" if language == "fr" else r" ([,.?])", r"\1", " ".join(word for word in translated if word))
    return text[:1].upper() + text[1:]


@cache
def dictionary(column: int) -> dict[str, str]:
    """Maps English forms to German (0) or French (1) forms, keeping the first of several lemmas."""
    lemmas = lexicon()
    words = {source: targets[column] for source, *targets in lemmas.function_words}

    def learn(source: str, *targets: str) -> None:
        words.setdefault(source.lower(), targets[column])

    for noun in lemmas.nouns:
        for plural in (0, 1):
            learn(noun.english[plural], noun.german[plural][0], noun.french[plural])
    for adjective in lemmas.adjectives:
        learn(adjective.english, adjective.german_stem + "e", adjective.french[0])
    for verb in [lemmas.be, lemmas.become, *lemmas.verbs]:
        for source, forms in _verb_forms(verb):
            learn(source, *forms)
    for adverbial in lemmas.adverbials:
        learn(*(phrase.split()[-1] for phrase in (adverbial.english, adverbial.german, adverbial.french)))
    for row in lemmas.prepositions.values():
        learn(row.english, row.german, row.french[0])
    for conjunction in lemmas.conjunctions["p"].lemmas:
        learn(conjunction.english, conjunction.german[0], conjunction.french)
    for profession in lemmas.professions.lemmas:
        learn(profession.english, profession.german[0], profession.french[0])
    for value in range(2, 100):
        learn(english.number(value), german.number(value), " ".join(french.number(value)))
    return words


def _verb_forms(verb: Verb) -> list[tuple[str, tuple[str, str]]]:
    """Pairs each English form with the closest German and French forms, and particle with prefix."""
    forms = verb.english
    return [
        (forms.third, (verb.german.present[2], verb.french.present[2])),
        (forms.past, (verb.german.past[2], verb.french.participle)),
        (forms.base, (verb.german.infinitive, verb.french.infinitive)),
        (forms.participle, (verb.german.participle, verb.french.participle)),
        (forms.gerund, (verb.german.present[2], verb.french.present[2])),
        (forms.particle, (verb.german.prefix, "")),
    ]
