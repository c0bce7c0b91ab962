"""Abstract syntax: the language-independent content of a derivation, which the realisers turn into words."""

from typing import Literal, NamedTuple, Union

from pipeline.corpora.grammar import lexicon

Tense = Literal["present", "progressive", "past", "perfect", "future"]
"""The English tense. German: Präsens (both presents), Präteritum, Perfekt, Futur; French: présent, passé composé (past
and perfect; imparfait of stative verbs and modals), futur."""
Determiner = Literal["the", "a", "this", "every", "many", "my", "your", "his", "her", "our", "", "name"]
"""Empty: no article (mass noun, bare plural or bare number); "name": a proper name."""


class NounPhrase(NamedTuple):
    """A noun and its dependents."""

    noun: lexicon.Noun
    determiner: Determiner = "the"
    plural: bool = False
    number: int = 0
    """2 to 99, or 0 for none."""
    adjectives: tuple[lexicon.Adjective, ...] = ()
    """In English order; of two, the first precedes the noun in French and the second follows it."""
    compound: tuple[lexicon.Noun, str] | None = None
    """First part of a compound, and its form within the German compound."""
    owner: Union["NounPhrase", None] = None
    """The owner: "Anna's book" for a name, else "the roof of the house"."""
    relative: Union["RelativeClause", None] = None

    @property
    def person(self) -> int:
        """Person, an index as in `inflection`."""
        return 4 if self.plural else 2

    @property
    def german_gender(self) -> str:
        """Gender: "m", "f" or "n", or "p" for any plural."""
        return "p" if self.plural else self.noun.german_gender

    @property
    def french_gender(self) -> tuple[str, bool]:
        """Gender, "m" or "f", and True for plural."""
        return self.noun.french_gender, self.plural


class Pronoun(NamedTuple):
    """A personal pronoun; in the third person it refers to `noun`, whose gender decides its German and French form."""

    person: int
    noun: lexicon.Noun | None = None

    @property
    def german_gender(self) -> str:
        """Gender: "m", "f" or "n", or "p" for any plural."""
        return "p" if self.person > 2 else self.noun.german_gender if self.noun else "m"

    @property
    def french_gender(self) -> tuple[str, bool]:
        """Gender, "m" or "f" ("m" for I, you and we), and True for plural."""
        return (self.noun.french_gender if self.noun else "m"), self.person > 2


class Gap(NamedTuple):
    """The position from which a relative pronoun was moved: silent, but verb and participle agree with it."""

    person: int
    german_gender: str
    french_gender: tuple[str, bool]


class Coordination(NamedTuple):
    """Two noun phrases joined by and."""

    first: NounPhrase
    second: NounPhrase
    person: int = 4
    german_gender: str = "p"

    @property
    def french_gender(self) -> tuple[str, bool]:
        """Feminine only if both nouns are; always plural."""
        both = self.first.noun.french_gender == self.second.noun.french_gender == "f"
        return ("f" if both else "m"), True


Nominal = NounPhrase | Pronoun | Gap | Coordination


class PrepositionalPhrase(NamedTuple):
    """A preposition and its noun phrase."""

    preposition: lexicon.Preposition
    phrase: NounPhrase | Gap


class RelativeClause(NamedTuple):
    """A clause with a gap; `role` is the gap's function, and `preposition` belongs to role "place"."""

    role: Literal["subject", "object", "indirect", "place"]
    clause: "Clause"
    preposition: lexicon.Preposition | None = None


class Clause(NamedTuple):
    """A subject, a verb and other parts. The direct object of a verb of frame d is a German dative."""

    subject: Nominal
    verb: lexicon.Verb
    tense: Tense = "present"
    modal: lexicon.Modal | None = None
    """A modal verb, which carries the clause's `tense` (present or past)."""
    negated: bool = False
    object: Nominal | None = None
    indirect: Nominal | None = None
    prepositional: NounPhrase | None = None
    """The object of the verb's own preposition."""
    predicate: lexicon.Adjective | lexicon.Profession | None = None
    frequency: lexicon.Adverbial | None = None
    manner: lexicon.Adverbial | None = None
    place: PrepositionalPhrase | None = None
    time: lexicon.Adverbial | None = None
    time_first: bool = False
    complement: Union["Clause", None] = None


class Sentence(NamedTuple):
    """One clause, or two joined by a `link`: "but", "and", or a conjunction that subordinates the second."""

    main: Clause
    second: Clause | None = None
    link: lexicon.Conjunction | Literal["and", "but", ""] = ""
    second_first: bool = False
    question: bool = False
