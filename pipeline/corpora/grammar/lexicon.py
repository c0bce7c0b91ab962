"""The lemmas with all their forms, read once from `words`, and a Zipf-like choice among them."""

from bisect import bisect
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from random import Random
from typing import Generic, NamedTuple, TypeVar

from pipeline.corpora.grammar import words
from pipeline.corpora.grammar.inflection import (
    EnglishVerb,
    Four,
    FrenchVerb,
    GermanVerb,
    english_plural,
    english_verb,
    french_adjective,
    french_plural,
    french_verb,
    german_noun,
    german_verb,
)

Lemma = TypeVar("Lemma")


class Noun(NamedTuple):
    """A noun with forms (singular, plural). `kind` is as in `words`, or "name" for proper names."""

    kind: str
    english: tuple[str, str]
    sex: str
    """The English pronoun: "m" for he, "f" for she, "n" for a child, "" for it."""
    german: tuple[Four, Four]
    german_gender: str
    french: tuple[str, str]
    french_gender: str


class Adjective(NamedTuple):
    """An adjective; for German, the predicative form and the stem of the declined forms."""

    kinds: str
    english: str
    german: str
    german_stem: str
    french: Four
    before_vowel: str
    """French masculine singular before a vowel (vieil), or ""."""
    precedes: bool
    """True if it precedes the noun in French."""


class Verb(NamedTuple):
    """A verb. Frames: t transitive, d transitive with a German dative, g ditransitive, i intransitive, l with a place,
    m with a direction, p with a preposition, c with a that-clause, b copula."""

    frame: str
    subjects: str
    objects: str
    stative: bool
    english: EnglishVerb
    german: GermanVerb
    french: FrenchVerb
    preposition: "Preposition | None"


class Modal(NamedTuple):
    """A modal verb: can, must, want to."""

    english: tuple[str, str]
    german: GermanVerb
    french: FrenchVerb


class Preposition(NamedTuple):
    """A preposition; `french` may be empty (attendre quelqu'un)."""

    english: str
    german: str
    german_case: int
    french: list[str]
    kinds: str


class Adverbial(NamedTuple):
    """An adverb or adverbial phrase of time, frequency or manner."""

    english: str
    german: str
    french: str
    tenses: str = ""


class Profession(NamedTuple):
    """A profession, used without an article in German and French; forms are (masculine, feminine)."""

    english: str
    german: tuple[str, str]
    french: tuple[str, str]


class Conjunction(NamedTuple):
    """A subordinating conjunction; `german` is (present, past)."""

    tenses: str
    english: str
    german: tuple[str, str]
    french: str


class Zipf(Generic[Lemma]):
    """Chooses among lemmas; the lemma of rank r (from 0) has weight 1 / (r + 2)."""

    def __init__(self, lemmas: Sequence[Lemma]) -> None:
        self.lemmas = tuple(lemmas)
        weights = list(accumulate(1 / (rank + 2) for rank in range(len(self.lemmas))))
        self.cumulative = [weight / weights[-1] for weight in weights[:-1]]

    def pick(self, random: Random) -> Lemma:
        """Draws one random number and returns the lemma it selects."""
        return self.lemmas[bisect(self.cumulative, random.random())]


def rows(table: str) -> Iterator[list[str]]:
    """Yields the cells of each row of a table in `words`, without comments."""
    for line in table.strip().split("\n"):
        if not line.startswith("#"):
            yield [cell.strip() for cell in line.split("|")]


def _noun(kind: str, english: str, german: str, french: str) -> Noun:
    singular, *plurals = english.split()
    word, gender, plural, *weak = german.split()
    french_word, french_gender, *french_plurals = french.split()
    feminine = gender == "f" or word == "Mädchen"
    sex = "" if kind != "P" else "n" if word == "Kind" else "f" if feminine else "m"
    return Noun(
        kind,
        (singular, plurals[0] if plurals else english_plural(singular)),
        sex,
        german_noun(word, gender, plural, bool(weak)),
        gender,
        (french_word, french_plurals[0] if french_plurals else french_plural(french_word)),
        french_gender,
    )


def _name(name: str, sex: str) -> Noun:
    forms: Four = (name, name, name, name + "s")
    return Noun("name", (name, name), sex, (forms, forms), sex, (name, name), sex)


def _adjective(kinds: str, english: str, german: str, french: str) -> Adjective:
    predicative, *stems = german.split()
    *forms, last = french.split()
    precedes = last == "<"
    forms = forms if precedes else [*forms, last]
    masculine, feminine, before_vowel = [*forms, "", ""][:3]
    stem = stems[0] if stems else predicative.removesuffix("e")
    four = french_adjective(masculine, feminine)
    return Adjective(kinds, english, predicative, stem, four, before_vowel, precedes)


def _german_verb(cell: str) -> GermanVerb:
    parts = cell.split()
    sein = parts[-1] == "sein" and len(parts) > 1
    infinitive, third, past, participle = [*(parts[:-1] if sein else parts), "", "", ""][:4]
    return german_verb(infinitive, third, past, participle, sein)


def _french_verb(cell: str) -> FrenchVerb:
    parts = cell.split()
    marks = [part for part in parts if part in ("être", "se", "à") and part != parts[0]]
    parts = parts[:1] + [part for part in parts[1:] if part not in marks]
    return french_verb(parts, "être" in marks, "se" in marks, "à" in marks)


def _verb(row: Sequence[str]) -> Verb:
    kinds, english, german, french, *rest = row
    frame, subjects, objects = kinds.split() if len(kinds.split()) == 3 else [*kinds.split(), ""]
    *forms, particle = [*english.split(), ""] if "+" not in english else english.split()
    preposition = None
    if frame == "p":
        preposition = _preposition("|".join(cell.strip() for cell in rest[0].split(";")).split("|"))
    english_forms = EnglishVerb("be", "is", "was", "been", "being", "") if forms[0] == "be" else english_verb(*forms)
    return Verb(
        frame,
        subjects,
        "" if objects == "-" else objects,
        rest == ["s"],
        english_forms._replace(particle=particle.lstrip("+")),
        _german_verb(german),
        _french_verb(french),
        preposition,
    )


def _preposition(row: Sequence[str]) -> Preposition:
    english, german, french, *kinds = row
    word, case = german.split()
    return Preposition(
        english, word, {"acc": 1, "dat": 2}[case], [] if french == "-" else french.split(), kinds[0] if kinds else ""
    )


class Lexicon:
    """All lemmas, made once per process by `lexicon()`."""

    def __init__(self) -> None:
        nouns = [_noun(*row) for row in rows(words.NOUNS)]
        by_english = {noun.english[0]: noun for noun in nouns}
        self.nouns = nouns
        self.noun_of = by_english
        self.names = Zipf([_name(*row[0].split()) for row in rows(words.NAMES)])
        kinds = dict.fromkeys(noun.kind for noun in nouns)
        self._nouns_of: dict[str, Zipf[Noun]] = {}
        self.compounds: dict[str, list[tuple[Noun, str]]] = {}
        for english, form, heads in rows(words.COMPOUNDS):
            for head in heads.split():
                self.compounds.setdefault(head, []).append((by_english[english], form))
        self.adjectives = [_adjective(*row) for row in rows(words.ADJECTIVES)]
        self.adjectives_of = {
            kind: Zipf([adjective for adjective in self.adjectives if kind in adjective.kinds]) for kind in kinds
        }
        self.colours_of = {
            kind: Zipf([a for a in self.adjectives if kind in a.kinds and not a.precedes]) for kind in kinds
        }
        self.verbs = [_verb(row) for row in rows(words.VERBS)]
        self.verbs_of = {frame: Zipf([verb for verb in self.verbs if verb.frame == frame]) for frame in "tdgilmpc"}
        self.be, self.become = (_verb(next(rows(row))) for row in (words.BE, words.BECOME))
        self.modals = Zipf(
            [
                Modal((english.split()[0], english.split()[1]), _german_verb(german), _french_verb(french))
                for english, german, french in rows(words.MODALS)
            ]
        )
        self.prepositions = {row[0]: _preposition(row) for row in rows(words.PREPOSITIONS)}
        times = [Adverbial(english, german, french, tenses) for tenses, english, german, french in rows(words.TIMES)]
        self.times = {letter: Zipf([time for time in times if letter in time.tenses]) for letter in "phf"}
        self.frequencies = Zipf([Adverbial(*row) for row in rows(words.FREQUENCIES)])
        self.manners = Zipf([Adverbial(*row) for row in rows(words.MANNERS)])
        self.adverbials = [*times, *self.frequencies.lemmas, *self.manners.lemmas]
        self.professions = Zipf(
            [
                Profession(english, (german.split()[0], german.split()[1]), (french.split()[0], french.split()[1]))
                for english, german, french in rows(words.PROFESSIONS)
            ]
        )
        conjunctions = [
            Conjunction(tenses, english, (german.split()[0], german.split()[1]), french)
            for tenses, english, german, french in rows(words.CONJUNCTIONS)
        ]
        self.conjunctions = {letter: Zipf([c for c in conjunctions if letter in c.tenses]) for letter in "ph"}
        self.haben = next(verb for verb in self.verbs if verb.english.base == "have").german
        self.avoir = next(verb for verb in self.verbs if verb.english.base == "have").french

    def nouns_of(self, kinds: str) -> Zipf[Noun]:
        """Returns a choice among the nouns of the given kinds, ranked as in the list."""
        if kinds not in self._nouns_of:
            self._nouns_of[kinds] = Zipf(self._mixed(kinds))
        return self._nouns_of[kinds]

    def _mixed(self, kinds: str) -> list[Noun]:
        columns = [[noun for noun in self.nouns if noun.kind == kind] for kind in kinds]
        longest = max(map(len, columns))
        return [column[rank] for rank in range(longest) for column in columns if rank < len(column)]


@cache
def lexicon() -> Lexicon:
    """Returns the lexicon of this process."""
    return Lexicon()
