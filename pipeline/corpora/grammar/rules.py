"""The rules of the grammar: the sentences and their frequencies, drawn from one random stream.

A rule draws a sentence's meaning (abstract syntax), independent of language. Nothing that English leaves ambiguous is
drawn, so the English sentence determines its translation: `it` and `they` always refer to the object of the previous
clause (or its subject, without an object), and `you` is one person, du and tu.
"""

from random import Random

from pipeline.corpora.grammar import syntax
from pipeline.corpora.grammar.lexicon import Adjective, Lexicon, Preposition, Profession, Verb, Zipf, lexicon

DEPTH_DECAY = 0.5
"""Factor on the probability of a relative clause per level: depth is unbounded but decays geometrically."""
RELATIVE = 0.12
"""Probability of a relative clause for an eligible noun phrase of an outermost clause."""
TENSES: Zipf[syntax.Tense] = Zipf(["present", "present", "past", "past", "perfect", "future", "progressive"])
FRAMES = Zipf(["t", "t", "b", "t", "t", "i", "m", "t", "g", "c", "d", "p", "l", "t"])
DETERMINERS: Zipf[syntax.Determiner] = Zipf(
    ["the", "the", "the", "a", "my", "this", "the", "his", "her", "your", "our"]
)
NO_PROGRESSIVE = frozenset(["be", "see", "hear", "find", "forget", "know", "say", "believe", "hope"])
OWNED = frozenset(["friend", "teacher", "doctor", "neighbour"])
"""Persons that can have an owner (my friend)."""
SOCIABLE = frozenset(["work", "sing", "dance", "play", "laugh"])
"""Intransitive verbs for activities shared with others."""
LETTERS = {"present": "p", "progressive": "p", "past": "h", "perfect": "", "future": "f"}
"""Letter of each tense in the tables of times and conjunctions."""


class Rules:
    """The rules, drawing from one random stream."""

    def __init__(self, random: Random, words: Lexicon) -> None:
        self.random = random
        self.words = words

    def chance(self, probability: float) -> bool:
        """Returns True with this probability."""
        return self.random.random() < probability

    def sentence(self) -> syntax.Sentence:
        """Draws a whole sentence."""
        kind = self.random.random()
        if kind < 0.66:
            return syntax.Sentence(self.clause(fronting=True))
        if kind < 0.72:
            return syntax.Sentence(self.clause(question=True), question=True)
        if kind < 0.86:
            return self.with_pronoun()
        return self.subordination()

    def subordination(self) -> syntax.Sentence:
        """Draws a complex sentence: The dog runs because the cat sleeps; When the cat sleeps, the dog runs."""
        tense: syntax.Tense = "past" if self.chance(0.4) else "present"
        conjunction = self.words.conjunctions[LETTERS[tense]].pick(self.random)
        second = self.clause(tense, short=True)
        return syntax.Sentence(self.clause(tense, short=True), second, conjunction, self.chance(0.4))

    def with_pronoun(self) -> syntax.Sentence:
        """Draws two clauses with a pronoun in the second, agreeing with its noun: The lamp is old, but I like it."""
        tense: syntax.Tense = "past" if self.chance(0.4) else "present"
        main = self.clause(tense, short=True, frame="b" if self.chance(0.35) else "t", full=True)
        antecedent = main.object or main.subject
        if not isinstance(antecedent, syntax.NounPhrase) or antecedent.determiner == "":
            return syntax.Sentence(main)
        if antecedent.noun.sex == "n" and not antecedent.plural:
            return syntax.Sentence(main)  # in English he, she and it are possible
        pronoun = syntax.Pronoun(4 if antecedent.plural else 2, antecedent.noun)
        if self.chance(0.5):
            second = self.clause(tense, frame="b", subject=pronoun, short=True)
        else:
            verbs = [verb for verb in self.words.verbs if verb.frame == "t" and antecedent.noun.kind in verb.objects]
            if not verbs:
                return syntax.Sentence(main)
            subject = self.speaker() if self.chance(0.6) else self.noun_phrase("P", short=True)
            if isinstance(subject, syntax.NounPhrase) and antecedent.noun.kind in "PA":
                subject = self.speaker()
            verb = Zipf(verbs).pick(self.random)
            second = self.clause(tense, subject=subject, verb=verb, object_=pronoun, short=True)
        if self.chance(0.6):
            return syntax.Sentence(main, second, "but" if self.chance(0.6) else "and")
        return syntax.Sentence(main, second, self.words.conjunctions[LETTERS[tense]].lemmas[0])

    def name(self) -> syntax.NounPhrase:
        """Draws a proper name, e.g. Anna."""
        return syntax.NounPhrase(self.words.names.pick(self.random), "name")

    def speaker(self) -> syntax.Pronoun:
        """Draws I, you or we."""
        return syntax.Pronoun((0, 3, 1)[min(int(self.random.random() * 3.5), 2) if self.chance(0.5) else 0])

    def clause(
        self,
        tense: syntax.Tense | None = None,
        *,
        frame: str | None = None,
        verb: Verb | None = None,
        subject: syntax.Nominal | None = None,
        object_: syntax.Nominal | None = None,
        fronting: bool = False,
        question: bool = False,
        short: bool = False,
        full: bool = False,
        depth: int = 0,
    ) -> syntax.Clause:
        """Draws a clause around the given parts. `short` limits additions; `full` excludes pronouns."""
        random, words = self.random, self.words
        if verb is None:
            frame = frame or FRAMES.pick(random)
            if frame == "c" and (depth or short):
                frame = "t"
            verb = self.copula() if frame == "b" else words.verbs_of[frame].pick(random)
        frame = verb.frame
        tense = tense or TENSES.pick(random)
        if tense == "progressive" and (verb.stative or verb.english.base in NO_PROGRESSIVE):
            tense = "present"
        if tense == "perfect" and verb.stative:
            tense = "past"
        if subject is None:
            subject = self.subject(verb, full, question, short, depth)
        if tense == "past" and verb.english.past == verb.english.base and subject.person != 2:
            tense = "present"  # I read, I put on: ambiguous in English
        modal = None
        if tense in ("present", "past") and not verb.stative and frame not in "cb" and self.chance(0.12):
            modal = words.modals.pick(random)
        clause = syntax.Clause(subject, verb, tense, modal)
        added: dict[str, object] = {}
        if frame == "b":
            added["predicate"] = self.predicate(subject)
        elif frame in "tdg":
            full_object = full or isinstance(subject, syntax.Pronoun)
            added["object"] = object_ or self.direct_object(verb, full_object, short, depth)
        if frame == "g":
            pronoun = self.chance(0.35) and isinstance(subject, syntax.NounPhrase)
            added["indirect"] = self.speaker() if pronoun else self.noun_phrase("P", short=True)
        elif frame == "p":
            added["prepositional"] = self.noun_phrase(verb.objects, short=short, depth=depth)
        elif frame == "c":
            inner: syntax.Tense = "past" if tense in ("past", "perfect") else "present"
            added["complement"] = self.clause(inner, short=True, depth=depth + 1)
            return clause._replace(**added)  # type: ignore[arg-type]
        free = 0.4 if short else 1.0
        final = added.get("object") or added.get("prepositional")
        # Anything after a relative clause would be parsed as part of it.
        closed = isinstance(final, syntax.NounPhrase) and final.relative is not None
        definite = not isinstance(final, syntax.NounPhrase) or final.determiner not in ("a", "", "many")
        if modal is None and definite and not question and tense in ("present", "past") and self.chance(0.06):
            added["negated"] = True
        elif self.chance(0.07 * free):
            added["frequency"] = words.frequencies.pick(random)
        elif frame in "tim" and not closed and not verb.stative and self.chance(0.06 * free):
            added["manner"] = words.manners.pick(random)
        if not closed and (frame != "i" or not verb.german.sein):
            added["place"] = self.place(verb, free)
        letter = LETTERS[tense] if modal is None or tense == "past" else "p"
        if letter and self.chance(0.16 * free) and "frequency" not in added:
            added["time_first"] = fronting and self.chance(0.6)
            if added["time_first"] or not closed:
                added["time"] = words.times[letter].pick(random)
        return clause._replace(**added)  # type: ignore[arg-type]

    def copula(self) -> Verb:
        """Draws be, or occasionally become."""
        return self.words.become if self.chance(0.1) else self.words.be

    def subject(self, verb: Verb, full: bool, question: bool, short: bool, depth: int) -> syntax.Nominal:
        """Draws a subject compatible with the verb."""
        if verb.frame == "b" and self.chance(0.55):
            return self.noun_phrase("TPLCDBARSVN" if self.chance(0.5) else "TDCR", depth=depth, short=short)
        kinds = "A" if "A" in verb.subjects and self.chance(0.35) else "P"
        if not full and kinds == "P":
            chance = self.random.random()
            if chance < 0.2:
                return self.speaker()
            if chance < 0.3:
                return syntax.Pronoun(2, self.words.noun_of["man" if self.chance(0.5) else "woman"])
            if chance < 0.38:
                return self.name()
            if chance < 0.41 and not short and not question:
                return syntax.Coordination(self.noun_phrase("P", plain=True), self.noun_phrase("P", plain=True))
        return self.noun_phrase(kinds, depth=depth, short=short)

    def direct_object(self, verb: Verb, full: bool, short: bool, depth: int) -> syntax.Nominal:
        """Draws a direct object compatible with the verb; `full` excludes pronouns."""
        if verb.objects in ("M", "K") or (verb.objects == "FM" and self.chance(0.3)):
            return self.noun_phrase("K" if verb.objects == "K" else "M", short=short)
        if "P" in verb.objects and not full and self.chance(0.08):
            return self.speaker()
        kinds = verb.objects.replace("M", "")
        return self.noun_phrase(kinds, depth=depth, short=short or verb.frame == "g", bare=True)

    def predicate(self, subject: syntax.Nominal) -> Adjective | Profession:
        """Draws a predicate compatible with the subject: old, or a teacher."""
        noun = subject.noun if isinstance(subject, syntax.NounPhrase | syntax.Pronoun) else None
        kind = noun.kind if noun else "P"
        adult = kind in ("P", "name") and (noun is None or noun.german_gender != "n")
        if adult and subject.person <= 2 and self.chance(0.15):
            return self.words.professions.pick(self.random)
        return self.words.adjectives_of["P" if kind == "name" else kind].pick(self.random)

    def place(self, verb: Verb, free: float) -> syntax.PrepositionalPhrase | None:
        """Draws a place or none: in the garden; into the garden with verbs of motion; with the teacher."""
        words, frame, chance = self.words, verb.frame, self.random.random()
        if frame == "m":
            return self.prepositional("to" if chance < 0.6 else "into")
        if frame == "l":
            return self.prepositional("in" if chance < 0.8 else "next to")
        if frame in "bpcg" or chance > 0.2 * free:
            return None
        chance = self.random.random()
        if chance < 0.25 and (frame == "t" or verb.english.base in SOCIABLE):
            with_whom = words.prepositions["with" if chance < 0.18 else "without" if chance < 0.2 else "for"]
            return syntax.PrepositionalPhrase(with_whom, self.noun_phrase("P", plain=True))
        return self.prepositional("in" if chance < 0.75 else "behind" if chance < 0.85 else "next to")

    def prepositional(self, name: str) -> syntax.PrepositionalPhrase:
        """Draws a prepositional phrase with a compatible noun."""
        preposition = self.words.prepositions[name]
        return syntax.PrepositionalPhrase(preposition, self.noun_phrase(preposition.kinds, plain=True))

    def noun_phrase(
        self, kinds: str, *, depth: int = 0, short: bool = False, plain: bool = False, bare: bool = False
    ) -> syntax.NounPhrase:
        """Draws a noun phrase. `plain` allows only article and adjective; `bare` allows a missing article."""
        random, words = self.random, self.words
        noun = words.nouns_of(kinds).pick(random)
        kind = noun.kind
        mass = kind in "MK"
        determiner = DETERMINERS.pick(random)
        plural, number = not mass and self.chance(0.1 if plain else 0.22), 0
        if mass:
            determiner = "" if self.chance(0.6) or determiner == "a" else determiner
        elif plural:
            if determiner == "a":
                determiner = "" if bare else "the"
            if self.chance(0.25):
                number = self.number()
                determiner = "" if self.chance(0.6) else determiner
            elif bare and self.chance(0.2):
                determiner = "many" if self.chance(0.4) else ""
        elif self.chance(0.03) and not plain:
            determiner = "every"
        phrase = syntax.NounPhrase(noun, determiner, plural, number)
        if self.chance(0.15 if plain else 0.35):
            phrase = phrase._replace(adjectives=self.adjectives(kind))
        if plain or mass:
            return phrase
        if noun.english[0] in words.compounds and self.chance(0.4):
            first = words.compounds[noun.english[0]]
            return phrase._replace(compound=first[int(random.random() * len(first))])
        if short:
            return phrase
        return self.extended(phrase, depth)

    def number(self) -> int:
        """Draws a number, mostly two to ten, occasionally up to ninety-nine."""
        return 2 + int(self.random.random() * (9 if self.chance(0.8) else 98))

    def adjectives(self, kind: str) -> tuple[Adjective, ...]:
        """Draws one adjective, or two; the second then follows the noun in French."""
        words = self.words
        first = words.adjectives_of[kind].pick(self.random)
        if first.precedes and self.chance(0.12) and words.colours_of[kind].lemmas:
            return first, words.colours_of[kind].pick(self.random)
        return (first,)

    def extended(self, phrase: syntax.NounPhrase, depth: int) -> syntax.NounPhrase:
        """Adds an owner, a relative clause or nothing."""
        kind, chance = phrase.noun.kind, self.random.random()
        decay = DEPTH_DECAY**depth
        if chance < RELATIVE * decay and phrase.determiner in ("the", "a", "this"):
            return phrase._replace(relative=self.relative(phrase, depth))
        if chance > 1 - 0.06 * decay:
            if kind in "TDRCVA" or phrase.noun.english[0] in OWNED:
                named = self.chance(0.6)
                owner = self.name() if named else self.noun_phrase("P", plain=True)
            elif kind == "B":
                owner = self.noun_phrase("L", plain=True)
            else:
                return phrase
            if owner.determiner == "" or phrase.determiner != "the":
                return phrase
            return phrase._replace(owner=owner)
        return phrase

    def relative(self, head: syntax.NounPhrase, depth: int) -> syntax.RelativeClause:
        """Draws a relative clause: who sleeps; that I see; with whom I work; in which we live."""
        kind, random, words = head.noun.kind, self.random, self.words
        gap = syntax.Gap(head.person, head.german_gender, head.french_gender)
        tense: syntax.Tense = ("present", "past", "perfect")[int(random.random() * 2.5)]
        chance = random.random()
        if kind in "PA" and chance < 0.55:
            frame = FRAMES.pick(random)
            frame = "t" if frame in "bc" or (kind == "A" and frame in "glp") else frame
            verb = Zipf([verb for verb in words.verbs_of[frame].lemmas if kind in verb.subjects]).pick(random)
            clause = self.clause(tense, verb=verb, subject=gap, short=True, depth=depth + 1)
            return syntax.RelativeClause("subject", clause)
        subject = self.speaker() if self.chance(0.4) else self.noun_phrase("P", short=self.chance(0.5), depth=depth + 1)
        if kind == "P" and chance < 0.65:
            clause = self.clause(tense, frame="g", subject=subject, short=True, depth=depth + 1)
            return syntax.RelativeClause("indirect", clause._replace(indirect=gap))
        preposition: Preposition | None = None
        if kind == "P" and chance < 0.72:
            preposition, verbs = words.prepositions["with"], [v for v in words.verbs if v.english.base in SOCIABLE]
        elif kind == "L" and chance < 0.5:
            preposition = words.prepositions["in"]
            verbs = [v for v in words.verbs if v.frame == "l" or v.english.base in SOCIABLE]
        if preposition:
            verb = Zipf(verbs).pick(random)
            clause = self.clause(tense, verb=verb, subject=subject, short=True, depth=depth + 1)
            placed = syntax.PrepositionalPhrase(preposition, gap)
            return syntax.RelativeClause("place", clause._replace(place=placed, negated=False), preposition)
        verbs = [verb for verb in words.verbs if verb.frame in "td" and kind in verb.objects]
        verb = Zipf(verbs).pick(random)
        clause = self.clause(tense, verb=verb, subject=subject, object_=gap, short=True, depth=depth + 1)
        return syntax.RelativeClause("object", clause)


def draw(random: Random) -> syntax.Sentence:
    """Draws a sentence."""
    return Rules(random, lexicon()).sentence()
