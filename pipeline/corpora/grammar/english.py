"""Realises English: a Penn-style bracketed tree and the sentence of its leaves.

Labels are the Penn Treebank's without functions and traces: (S (NP (DT The) (NN man)) (VP (VBZ sleeps)) (. .))
"""

import re

from pipeline.corpora.grammar import syntax
from pipeline.corpora.grammar.lexicon import Adverbial, Preposition, Profession, lexicon

SUBJECTS = ("I", "you", "", "we", "they")
OBJECTS = ("me", "you", "", "us", "them")
THIRD = {"m": ("he", "him"), "f": ("she", "her")}
LEAF = re.compile(r" ([^ ()]+)\)")


def number(value: int) -> str:
    """Spells a number from two to ninety-nine."""
    units, tens = lexicon().units["english"], lexicon().tens["english"]
    if value < 20:
        return units[value]
    return tens[value // 10] + (f"-{units[value % 10]}" if value % 10 else "")


def tree(sentence: syntax.Sentence) -> str:
    """Returns the bracketed tree on one line, the first leaf capitalised."""
    main = sentence.main
    if sentence.question:
        text = _question(main)
    elif sentence.second is None:
        text = _clause(main, " (. .)")
    elif isinstance(sentence.link, str):
        text = f"(S {_clause(main)} (, ,) (CC {sentence.link}) {_clause(sentence.second)} (. .))"
    else:
        word = sentence.link.english
        opening = f"(WHADVP (WRB {word}))" if word == "when" else f"(IN {word})"
        second = f"(SBAR {opening} {_clause(sentence.second)})"
        if sentence.second_first:
            text = _clause(main, " (. .)", f"{second} (, ,) ")
        else:
            text = _clause(main, " (. .)", subordinate=f" {second}")
    first = LEAF.search(text)
    assert first is not None
    start = first.start(1)
    return text[:start] + text[start].upper() + text[start + 1 :]


def tokens(bracketed: str) -> list[str]:
    """Returns the leaves of a tree."""
    return LEAF.findall(bracketed)


def detokenised(leaves: list[str]) -> str:
    """Joins the leaves into a sentence with normal spacing."""
    return " ".join(leaves).replace(" ,", ",").replace(" .", ".").replace(" ?", "?").replace(" 's", "'s")


def _clause(clause: syntax.Clause, end: str = "", opening: str = "", subordinate: str = "") -> str:
    """Builds S with `opening` before the subject, `subordinate` last in the verb phrase and `end` after it."""
    chain = _chain(clause)
    subject = "" if isinstance(clause.subject, syntax.Gap) else _nominal(clause.subject, 0) + " "
    time = f"{_adverbial(clause.time)} " if clause.time and clause.time_first else ""
    before, predicate = _verb_phrase(clause, chain, subordinate)
    return f"(S {opening}{time}{subject}{before}{predicate}{end})"


def _question(clause: syntax.Clause) -> str:
    chain = _chain(clause, inverted=True)
    tag, word = chain[0]
    subject = _nominal(clause.subject, 0)
    frequency = f" {_adverbial(clause.frequency)}" if clause.frequency else ""
    rest = _complements(clause)
    predicate = rest if len(chain) == 1 else " " + _nested(chain[1:], rest, clause.modal is not None)
    return f"(SQ ({tag} {word}) {subject}{frequency}{predicate} (. ?))"


def _chain(clause: syntax.Clause, inverted: bool = False) -> list[tuple[str, str]]:
    """Lists (tag, word) of auxiliaries and verb, finite verb first; inverted and negated clauses need an auxiliary."""
    verb, person, tense = clause.verb.english, clause.subject.person, clause.tense
    third = person == 2
    present = "VBZ" if third else "VBP"
    if clause.modal:
        word = clause.modal.english[tense == "past"]
        base = ("VB", verb.base)
        if word in ("can", "could", "must"):
            return [("MD", word), base]
        tag = "VBD" if tense == "past" else present
        return [(tag, word + "s" if tag == "VBZ" else word), ("TO", "to"), base]
    if tense == "future":
        return [("MD", "will"), ("VB", verb.base)]
    if tense == "perfect":
        return [(present, "has" if third else "have"), ("VBN", verb.participle)]
    if tense == "progressive":
        return [(present, _be(person, False)), ("VBG", verb.gerund)]
    past = tense == "past"
    tag = "VBD" if past else present
    if verb.base == "be":
        return [(tag, _be(person, past))]
    if clause.negated or inverted:
        return [(tag, "did" if past else "does" if third else "do"), ("VB", verb.base)]
    return [(tag, verb.past if past else verb.third if third else verb.base)]


def _be(person: int, past: bool) -> str:
    if past:
        return "was" if person in (0, 2) else "were"
    return ("am", "are", "is", "are", "are")[person]


def _verb_phrase(clause: syntax.Clause, chain: list[tuple[str, str]], subordinate: str) -> tuple[str, str]:
    """Returns the words between subject and verb phrase (e.g. often), and the verb phrase."""
    rest = _complements(clause) + subordinate
    frequency = _adverbial(clause.frequency) if clause.frequency else ""
    tag, word = chain[0]
    middle = " (RB not)" if clause.negated else ""
    if len(chain) == 1 and clause.verb.frame != "b":
        return (frequency + " " if frequency else ""), f"(VP ({tag} {word}){rest})"
    if frequency:
        middle += " " + frequency
    if len(chain) == 1:
        return "", f"(VP ({tag} {word}){middle}{rest})"
    return "", f"(VP ({tag} {word}){middle} {_nested(chain[1:], rest, chain[1][0] == 'TO')})"


def _nested(chain: list[tuple[str, str]], rest: str, infinitive: bool) -> str:
    """Builds the verb phrases inside the finite verb's, e.g. wants (S (VP (TO to) (VP ...)))."""
    if chain[0][0] == "TO":
        inner = f"(VP (TO to) (VP (VB {chain[1][1]}){rest}))"
        return f"(S {inner})" if infinitive else inner
    tag, word = chain[0]
    return f"(VP ({tag} {word}){rest})"


def _complements(clause: syntax.Clause) -> str:
    """Builds everything after the verb, each part with a leading space."""
    parts = []
    particle = f"(PRT (RP {clause.verb.english.particle}))" if clause.verb.english.particle else ""
    spoken = clause.object if not isinstance(clause.object, syntax.Gap) else None
    if clause.indirect and not isinstance(clause.indirect, syntax.Gap):
        parts.append(_nominal(clause.indirect, 1))
    if particle and not isinstance(spoken, syntax.Pronoun):
        parts.append(particle)
    if spoken:
        parts.append(_nominal(spoken, 1))
    if particle and isinstance(spoken, syntax.Pronoun):
        parts.append(particle)
    if clause.prepositional and clause.verb.preposition:
        parts.append(_prepositional(syntax.PrepositionalPhrase(clause.verb.preposition, clause.prepositional)))
    if isinstance(clause.predicate, Profession):
        parts.append(f"(NP (DT {_a(clause.predicate.english)}) (NN {clause.predicate.english}))")
    elif clause.predicate:
        parts.append(f"(ADJP (JJ {clause.predicate.english}))")
    if clause.manner:
        parts.append(_adverbial(clause.manner))
    if clause.place and not isinstance(clause.place.phrase, syntax.Gap):
        parts.append(_prepositional(clause.place))
    if clause.time and not clause.time_first:
        parts.append(_adverbial(clause.time))
    if clause.complement:
        parts.append(f"(SBAR (IN that) {_clause(clause.complement)})")
    return "".join(" " + part for part in parts)


def _adverbial(adverbial: Adverbial) -> str:
    return adverbial.tree or f"(ADVP (RB {adverbial.english}))"


def _prepositional(place: syntax.PrepositionalPhrase) -> str:
    return f"{_preposition(place.preposition)} {_nominal(place.phrase, 1)})"


def _preposition(preposition: Preposition) -> str:
    """Opens the phrase of a preposition."""
    if preposition.english == "next to":
        return "(PP (JJ next) (TO to)"
    return f"(PP ({'TO' if preposition.english == 'to' else 'IN'} {preposition.english})"


def _a(following: str) -> str:
    return "an" if following[0] in "aeiou" else "a"


def _nominal(nominal: syntax.Nominal, case: int) -> str:
    """Builds an NP; `case` is 0 for a subject, 1 for an object."""
    if isinstance(nominal, syntax.NounPhrase):
        return _noun_phrase(nominal)
    if isinstance(nominal, syntax.Coordination):
        return f"(NP {_noun_phrase(nominal.first)} (CC and) {_noun_phrase(nominal.second)})"
    word = (SUBJECTS, OBJECTS)[case][nominal.person]
    if not word:
        assert isinstance(nominal, syntax.Pronoun)
        word = THIRD[nominal.noun.sex][case] if nominal.noun and nominal.noun.sex else "it"
    return f"(NP (PRP {word}))"


def _noun_phrase(phrase: syntax.NounPhrase) -> str:
    noun, owner, determiner = phrase.noun, phrase.owner, phrase.determiner
    if determiner == "name":
        return f"(NP (NNP {noun.english[0]}))"
    words = [("CD", number(phrase.number))] if phrase.number else []
    words += [("JJ", adjective.english) for adjective in phrase.adjectives]
    if phrase.compound:
        words.append(("NN", phrase.compound[0].english[0]))
    words.append(("NNS" if phrase.plural else "NN", noun.english[phrase.plural]))
    named = owner is not None and owner.determiner == "name"
    if not named and determiner:
        words.insert(0, _determiner(determiner, phrase.plural, words[0][1]))
    flat = " ".join(f"({tag} {word})" for tag, word in words)
    if owner is not None and named:
        flat = f"(NP (NNP {owner.noun.english[0]}) (POS 's)) {flat}"
    text = f"(NP {flat})"
    after = []
    if owner is not None and not named:
        after.append(f"(PP (IN of) {_noun_phrase(owner)})")
    if phrase.relative:
        after.append(_relative(phrase, phrase.relative))
    return f"(NP {text} {' '.join(after)})" if after else text


def _determiner(determiner: str, plural: bool, following: str) -> tuple[str, str]:
    if determiner == "a":
        return "DT", _a(following)
    if determiner == "this":
        return "DT", "these" if plural else "this"
    if determiner == "many":
        return "JJ", "many"
    return ("DT" if determiner in ("the", "every") else "PRP$"), determiner


def _relative(head: syntax.NounPhrase, relative: syntax.RelativeClause) -> str:
    person = head.noun.kind == "P"
    if relative.preposition or relative.role == "indirect":
        opening = _preposition(relative.preposition) if relative.preposition else "(PP (TO to)"
        pronoun = "(WP whom)" if person else "(WDT which)"
        return f"(SBAR (WH{opening[1:]} (WHNP {pronoun})) {_clause(relative.clause)})"
    word = "(WDT that)" if not person else "(WP who)" if relative.role == "subject" else "(WP whom)"
    return f"(SBAR (WHNP {word}) {_clause(relative.clause)})"
