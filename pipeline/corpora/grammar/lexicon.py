"""The lemmas with all their forms, read once from `words.toml`, and a Zipf-like distribution over them."""

import tomllib
from bisect import bisect
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, zip_longest
from pathlib import Path
from random import Random
from typing import Generic, NamedTuple, TypeVar

from pipeline.corpora.grammar import inflection

Lemma = TypeVar("Lemma")


class Noun(NamedTuple):
    """A noun with forms (singular, plural). `kind` is as in `words.toml`, or "name" for proper names."""

    kind: str
    english: tuple[str, str]
    sex: str
    """English pronoun: "m" for he, "f" for she, "n" for a child, "" for it."""
    german: tuple[inflection.Four, inflection.Four]
    german_gender: str
    french: tuple[str, str]
    french_gender: str


class Adjective(NamedTuple):
    """An adjective; for German, the predicative form and the stem of the declined forms."""

    kinds: str
    english: str
    german: str
    german_stem: str
    french: inflection.Four
    before_vowel: str
    """French masculine singular before a vowel (vieil), or ""."""
    precedes: bool
    """Whether it precedes the noun in French."""


class Verb(NamedTuple):
    """A verb. Frames: t transitive, d transitive with a German dative, g ditransitive, i intransitive, l with a place,
    m with a direction, p with a preposition, c with a that-clause, b copula."""

    frame: str
    subjects: str
    objects: str
    stative: bool
    english: inflection.EnglishVerb
    german: inflection.GermanVerb
    french: inflection.FrenchVerb
    preposition: "Preposition | None"


class Modal(NamedTuple):
    """A modal verb: can, must, want to."""

    english: tuple[str, str]
    german: inflection.GermanVerb
    french: inflection.FrenchVerb


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
    tree: str = ""
    """The English tree, unless it is a single adverb."""


class Profession(NamedTuple):
    """A profession, used without an article in German and French; forms are (masculine, feminine)."""

    english: str
    german: tuple[str, str]
    french: tuple[str, str]


class Conjunction(NamedTuple):
    """A subordinating conjunction; `german` is (present, past)."""

    english: str
    german: tuple[str, str]
    french: str
    tenses: str


class Zipf(Generic[Lemma]):
    """Draws lemmas; rank r (from 0) has weight 1 / (r + 2)."""

    def __init__(self, lemmas: Sequence[Lemma]) -> None:
        self.lemmas = tuple(lemmas)
        weights = list(accumulate(1 / (rank + 2) for rank in range(len(self.lemmas))))
        self.cumulative = [weight / weights[-1] for weight in weights[:-1]]

    def pick(self, random: Random) -> Lemma:
        """Draws a lemma with one random number."""
        return self.lemmas[bisect(self.cumulative, random.random())]


def _noun(kind: str, english: str, german: str, french: str) -> Noun:
    singular, *plurals = english.split()
    word, gender, plural, *weak = german.split()
    french_word, french_gender, *french_plurals = french.split()
    feminine = gender == "f" or word == "Mädchen"
    sex = "" if kind != "P" else "n" if word == "Kind" else "f" if feminine else "m"
    return Noun(
        kind,
        (singular, plurals[0] if plurals else inflection.english_plural(singular)),
        sex,
        inflection.german_noun(word, gender, plural, bool(weak)),
        gender,
        (french_word, french_plurals[0] if french_plurals else inflection.french_plural(french_word)),
        french_gender,
    )


def _adjective(kinds: str, english: str, german: str, french: str) -> Adjective:
    predicative, *stems = german.split()
    *forms, last = french.split()
    precedes = last == "<"
    forms = forms if precedes else [*forms, last]
    masculine, feminine, before_vowel = [*forms, "", ""][:3]
    stem = stems[0] if stems else predicative.removesuffix("e")
    four = inflection.french_adjective(masculine, feminine)
    return Adjective(kinds, english, predicative, stem, four, before_vowel, precedes)


def _german_verb(cell: str) -> inflection.GermanVerb:
    parts = cell.split()
    sein = parts[-1] == "sein" and len(parts) > 1
    infinitive, third, past, participle = [*(parts[:-1] if sein else parts), "", "", ""][:4]
    return inflection.german_verb(infinitive, third, past, participle, sein)


def _french_verb(cell: str) -> inflection.FrenchVerb:
    parts = cell.split()
    marks = [part for part in parts if part in ("être", "se", "à") and part != parts[0]]
    parts = parts[:1] + [part for part in parts[1:] if part not in marks]
    return inflection.french_verb(parts, "être" in marks, "se" in marks, "à" in marks)


def _verb(frame: str, subjects: str, objects: str, english: str, german: str, french: str, *rest: str) -> Verb:
    *forms, particle = [*english.split(), ""] if "+" not in english else english.split()
    be = inflection.EnglishVerb("be", "is", "was", "been", "being", "")
    english_forms = be if forms[0] == "be" else inflection.english_verb(*forms)
    return Verb(
        frame,
        subjects,
        objects,
        rest == ("s",),
        english_forms._replace(particle=particle.lstrip("+")),
        _german_verb(german),
        _french_verb(french),
        _preposition(*rest) if frame == "p" else None,
    )


def _preposition(english: str, german: str, french: str, kinds: str = "") -> Preposition:
    word, case = german.split()
    cases = {"acc": inflection.ACCUSATIVE, "dat": inflection.DATIVE}
    return Preposition(english, word, cases[case], french.split(), kinds)


class Lexicon:
    """All lemmas, built once per process by `lexicon()`."""

    def __init__(self) -> None:
        words = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
        self.nouns = [_noun(*row) for row in words["nouns"]]
        self.noun_of = {noun.english[0]: noun for noun in self.nouns}
        names = [Noun("name", (n, n), sex, ((n, n, n, n + "s"),) * 2, sex, (n, n), sex) for n, sex in words["names"]]
        self.names = Zipf(names)
        self._nouns_of: dict[str, Zipf[Noun]] = {}
        self.compounds: dict[str, list[tuple[Noun, str]]] = {}
        for english, form, heads in words["compounds"]:
            for head in heads.split():
                self.compounds.setdefault(head, []).append((self.noun_of[english], form))
        self.adjectives = [_adjective(*row) for row in words["adjectives"]]
        adjectives_of = {kind: [a for a in self.adjectives if kind in a.kinds] for kind in {n.kind for n in self.nouns}}
        self.adjectives_of = {kind: Zipf(adjectives) for kind, adjectives in adjectives_of.items()}
        self.colours_of = {kind: Zipf([a for a in few if not a.precedes]) for kind, few in adjectives_of.items()}
        self.verbs = [_verb(*row) for row in words["verbs"]]
        self.verbs_of = {frame: Zipf([verb for verb in self.verbs if verb.frame == frame]) for frame in "tdgilmpc"}
        self.be, self.become = _verb(*words["be"]), _verb(*words["become"])
        self.modals = Zipf([Modal(e, _german_verb(g), _french_verb(f)) for e, g, f in words["modals"]])
        self.prepositions = {row[0]: _preposition(*row) for row in words["prepositions"]}
        times = [Adverbial(*row) for row in words["times"]]
        self.times = {letter: Zipf([time for time in times if letter in time.tenses]) for letter in "phf"}
        self.frequencies = Zipf([Adverbial(*row) for row in words["frequencies"]])
        self.manners = Zipf([Adverbial(*row) for row in words["manners"]])
        self.adverbials = [*times, *self.frequencies.lemmas, *self.manners.lemmas]
        self.professions = Zipf([Profession(*row) for row in words["professions"]])
        conjunctions = [Conjunction(*row) for row in words["conjunctions"]]
        self.conjunctions = {letter: Zipf([c for c in conjunctions if letter in c.tenses]) for letter in "ph"}
        self.haben = next(verb for verb in self.verbs if verb.english.base == "have").german
        self.avoir = next(verb for verb in self.verbs if verb.english.base == "have").french
        self.function_words: list[list[str]] = words["function_words"]
        self.units: dict[str, list[str]] = words["units"]
        """Numbers below twenty, by language."""
        self.tens: dict[str, list[str]] = words["tens"]

    def nouns_of(self, kinds: str) -> Zipf[Noun]:
        """Returns a distribution over the nouns of these kinds, ranked as listed."""
        if kinds not in self._nouns_of:
            columns = [[noun for noun in self.nouns if noun.kind == kind] for kind in kinds]
            self._nouns_of[kinds] = Zipf([noun for row in zip_longest(*columns) for noun in row if noun])
        return self._nouns_of[kinds]


@cache
def lexicon() -> Lexicon:
    """Returns the lexicon of this process."""
    return Lexicon()
