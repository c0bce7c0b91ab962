"""Realises German: case, agreement, declension, the position of the finite verb and the bracket of split verbs.

A clause is: (front) finite verb | middle field | rest of the verb; in subordinate clauses the finite verb is last.
Commas are separate tokens until the sentence is joined.
"""

from pipeline.corpora.grammar import inflection, syntax
from pipeline.corpora.grammar.lexicon import Profession, lexicon

PRONOUNS = (("ich", "du", "", "wir", "sie"), ("mich", "dich", "", "uns", "sie"), ("mir", "dir", "", "uns", "ihnen"))
THIRD = {"m": ("er", "ihn", "ihm"), "f": ("sie", "sie", "ihr"), "n": ("es", "es", "ihm")}
POSSESSIVES = {"a": "ein", "my": "mein", "your": "dein", "his": "sein", "her": "ihr", "our": "unser"}
WHICH = {**inflection.THE, "p": ("die", "die", "denen", "deren")}
CONTRACTIONS = {"in dem": "im", "in das": "ins", "zu dem": "zum", "zu der": "zur", "von dem": "vom", "an das": "ans"}


def number(value: int) -> str:
    """Spells a number from zwei to neunundneunzig."""
    units, tens = lexicon().units["german"], lexicon().tens["german"]
    if value < 20:
        return units[value]
    return (f"{units[value % 10]}und" if value % 10 else "") + tens[value // 10]


def text(sentence: syntax.Sentence) -> str:
    """Returns the German sentence."""
    main, second, link = sentence.main, sentence.second, sentence.link
    if second is None:
        words = _clause(main, "inverted" if sentence.question else "second")
    elif isinstance(link, str):
        joint = {"and": "und", "but": "aber"}[link]
        words = [*_clause(main, "second"), ",", joint, *_clause(second, "second")]
    else:
        subordinate = [link.german[second.tense == "past"], *_clause(second, "last")]
        if sentence.second_first:
            words = [*subordinate, ",", *_clause(main, "inverted")]
        else:
            words = [*_clause(main, "second"), ",", *subordinate]
    return _joined(words, "?" if sentence.question else ".")


def _joined(words: list[str], end: str) -> str:
    joined = " ".join(words).replace(" , ,", " ,").replace(" ,", ",").rstrip(",") + end
    return joined[0].upper() + joined[1:]


def _clause(clause: syntax.Clause, order: str) -> list[str]:
    """Lists the words of a clause; `order` places the finite verb: second, inverted (before the subject) or last."""
    finite, bracket, last = _verbs(clause)
    middle: list[str] = []
    tail: list[str] = []
    subject = _nominal(clause.subject, inflection.NOMINATIVE)
    front: list[str] = []
    if clause.time and clause.time_first:
        front, middle = [clause.time.german], subject
    elif order == "second":
        front = subject
    else:
        middle = subject
    indirect = clause.indirect
    first_case = inflection.DATIVE if clause.verb.frame == "d" else inflection.ACCUSATIVE
    if isinstance(clause.object, syntax.Pronoun):
        middle += _nominal(clause.object, first_case)
    if isinstance(indirect, syntax.Pronoun):
        middle += _nominal(indirect, inflection.DATIVE)
    if clause.time and not clause.time_first:
        middle.append(clause.time.german)
    if clause.frequency:
        middle.append(clause.frequency.german)
    if indirect and not isinstance(indirect, syntax.Pronoun):
        middle += _nominal(indirect, inflection.DATIVE)
    if isinstance(clause.object, syntax.NounPhrase):
        core, relative = _noun_phrase(clause.object, first_case)
        if clause.negated or clause.manner or clause.place:
            middle += core + relative
        else:  # last in the middle field, since its relative clause follows the verb
            middle, tail = middle + core, relative
    elif clause.object and not isinstance(clause.object, syntax.Pronoun):
        middle += _nominal(clause.object, first_case)
    if clause.negated:
        middle.append("nicht")
    if clause.manner:
        middle.append(clause.manner.german)
    if clause.prepositional and clause.verb.preposition:
        words = _prepositional(syntax.PrepositionalPhrase(clause.verb.preposition, clause.prepositional))
        tail = _relative(clause.prepositional.german_gender, clause.prepositional.relative)
        middle += words[: len(words) - len(tail)]
    if isinstance(clause.predicate, Profession):
        middle.append(clause.predicate.german[clause.subject.german_gender == "f"])
    elif clause.predicate:
        middle.append(clause.predicate.german)
    if clause.place and not isinstance(clause.place.phrase, syntax.Gap):
        middle += _prepositional(clause.place)
    words = [*middle, *last] if order == "last" else [*front, finite, *middle, *bracket]
    words += tail
    if clause.complement:
        words += [",", "dass", *_clause(clause.complement, "last")]
    return words


def _verbs(clause: syntax.Clause) -> tuple[str, list[str], list[str]]:
    """Returns the finite verb, the rest of the verb if split, and both joined for the end of a clause."""
    verb, person, tense = clause.verb.german, clause.subject.person, clause.tense
    if clause.modal:
        modal = clause.modal.german
        finite, rest = (modal.past if tense == "past" else modal.present)[person], verb.infinitive
    elif tense == "future":
        finite, rest = lexicon().become.german.present[person], verb.infinitive
    elif tense == "perfect":
        auxiliary = lexicon().be.german if verb.sein else lexicon().haben
        finite, rest = auxiliary.present[person], verb.participle
    else:
        finite = (verb.past if tense == "past" else verb.present)[person]
        return finite, [verb.prefix] if verb.prefix else [], [verb.prefix + finite]
    return finite, [rest], [rest, finite]


def _nominal(nominal: syntax.Nominal, case: int) -> list[str]:
    if isinstance(nominal, syntax.NounPhrase):
        core, tail = _noun_phrase(nominal, case)
        return core + tail
    if isinstance(nominal, syntax.Pronoun):
        return [PRONOUNS[case][nominal.person] or THIRD[nominal.german_gender][case]]
    if isinstance(nominal, syntax.Coordination):
        return [*_nominal(nominal.first, case), "und", *_nominal(nominal.second, case)]
    return []


def _noun_phrase(phrase: syntax.NounPhrase, case: int) -> tuple[list[str], list[str]]:
    """Returns the words of a noun phrase, and its relative clause between commas."""
    noun, owner, gender = phrase.noun, phrase.owner, phrase.german_gender
    named = owner is not None and owner.determiner == "name"
    words, endings = _determiner(phrase, gender, case)
    if owner is not None and named:
        words, endings = [owner.noun.german[0][inflection.GENITIVE]], inflection.STRONG_ENDINGS
    if phrase.number:
        words.append(number(phrase.number))
    words += [adjective.german_stem + endings[gender][case] for adjective in phrase.adjectives]
    word = noun.german[phrase.plural][case]
    words.append(phrase.compound[1] + word.lower() if phrase.compound else word)
    if owner is not None and not named:
        words += _nominal(owner, inflection.GENITIVE)
    return words, _relative(gender, phrase.relative)


def _determiner(phrase: syntax.NounPhrase, gender: str, case: int) -> tuple[list[str], dict[str, inflection.Four]]:
    """Returns the determiner, and the endings of the adjectives after it."""
    determiner = phrase.determiner
    if determiner == "the":
        return [inflection.THE[gender][case]], inflection.WEAK_ENDINGS
    if determiner in ("", "name"):
        return [], inflection.STRONG_ENDINGS
    if determiner == "many":
        return ["viel" + inflection.STRONG_ENDINGS[gender][case]], inflection.STRONG_ENDINGS
    if determiner in ("this", "every"):
        stem = "dies" if determiner == "this" else "jed"
        return [stem + inflection.THIS_ENDINGS[gender][case]], inflection.WEAK_ENDINGS
    return [POSSESSIVES[determiner] + inflection.A_ENDINGS[gender][case]], inflection.MIXED_ENDINGS


def _prepositional(place: syntax.PrepositionalPhrase) -> list[str]:
    """Lists preposition and noun phrase, contracted (im, zur) unless a relative clause makes the article emphatic."""
    preposition, phrase = place.preposition, place.phrase
    words = _nominal(phrase, preposition.german_case)
    if isinstance(phrase, syntax.NounPhrase) and phrase.determiner == "the" and not phrase.relative:
        contracted = CONTRACTIONS.get(f"{preposition.german} {words[0]}")
        if contracted:
            return [contracted, *words[1:]]
    return [preposition.german, *words]


def _relative(gender: str, relative: syntax.RelativeClause | None) -> list[str]:
    """Lists the words of the relative clause between commas; none without one."""
    if relative is None:
        return []
    clause = relative.clause
    if relative.preposition:
        opening = [relative.preposition.german, WHICH[gender][relative.preposition.german_case]]
    elif relative.role == "object":
        opening = [WHICH[gender][inflection.DATIVE if clause.verb.frame == "d" else inflection.ACCUSATIVE]]
    else:
        opening = [WHICH[gender][inflection.NOMINATIVE if relative.role == "subject" else inflection.DATIVE]]
    return [",", *opening, *_clause(clause, "last"), ","]
