"""Realises French: agreement, adjective position, clitic pronouns, participle agreement, elision and contraction.

Words stay separate until the sentence is joined; then le and je elide, ce and vieux change before a vowel, and de le
becomes du.
"""

from pipeline.corpora.grammar import syntax
from pipeline.corpora.grammar.lexicon import Profession, lexicon

SUBJECTS = ("je", "tu", "il", "nous", "ils")
DIRECT = ("me", "te", "le", "nous", "les")
INDIRECT = ("me", "te", "lui", "nous", "leur")
REFLEXIVE = ("me", "te", "se", "nous", "se")
DETERMINERS = {
    "the": ("le", "la", "les"),
    "a": ("un", "une", ""),
    "this": ("ce", "cette", "ces"),
    "every": ("chaque", "chaque", ""),
    "my": ("mon", "ma", "mes"),
    "your": ("ton", "ta", "tes"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
    "our": ("notre", "notre", "nos"),
}
BEFORE_VOWEL = {
    **{word: word[:-1] + "'" for word in ("le", "la", "je", "me", "te", "se", "ne", "de", "que")},
    **{"ce": "cet", "ma": "mon", "ta": "ton", "sa": "son"},
}
CONTRACTIONS = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
VOWELS = frozenset("aeiouhéèêàâôœ")
ASPIRATED = frozenset(["haut", "haute", "hauts", "hautes", "huit", "onze"])


def number(value: int, feminine: bool = False) -> list[str]:
    """Spells a number from deux to quatre-vingt-dix-neuf; un agrees in gender."""
    un, units = "une" if feminine else "un", lexicon().units["french"]
    if value < 20:
        return [units[value]]
    tens, rest = lexicon().tens["french"][value // 10], value % (20 if value >= 60 else 10)
    if rest == 0:
        return [tens + ("s" if value == 80 else "")]
    if rest in (1, 11) and value < 80:
        return [tens, "et", un if rest == 1 else "onze"]
    return [f"{tens}-{un if rest == 1 else units[rest]}"]


def text(sentence: syntax.Sentence) -> str:
    """Returns the French sentence."""
    main, second, link = sentence.main, sentence.second, sentence.link
    words = _clause(main)
    if sentence.question:
        words = ["est-ce", "que", *words]
    elif second is not None:
        following = _clause(second)
        if isinstance(link, str):
            words = [*words, ",", {"and": "et", "but": "mais"}[link], *following]
        elif sentence.second_first:
            words = [*link.french.split(), *following, ",", *words]
        else:
            words = [*words, *link.french.split(), *following]
    joined = _joined(words) + (" ?" if sentence.question else ".")
    return joined[0].upper() + joined[1:]


def _joined(words: list[str]) -> str:
    out: list[str] = []
    following = ""
    for word in reversed(words):
        vowel = following[:1].lower() in VOWELS and following not in ASPIRATED
        if vowel and word in BEFORE_VOWEL:
            word = BEFORE_VOWEL[word]
        elif "*" in word:  # vieux*vieil
            word = word.split("*")[vowel]
        elif word == "si" and following in ("il", "ils"):
            word = "s'"
        contracted = CONTRACTIONS.get((word, following))
        if contracted:
            out[-1] = word = contracted
        else:
            out.append(word)
        following = word
    return " ".join(reversed(out)).replace("' ", "'").replace(" ,", ",")


def _clause(clause: syntax.Clause) -> list[str]:
    subject, verb, tense, person = clause.subject, clause.verb.french, clause.tense, clause.subject.person
    words = [clause.time.french, ","] if clause.time and clause.time_first else []
    words += _nominal(subject)
    clitics = [REFLEXIVE[person]] if verb.reflexive else []
    agreement = None
    if isinstance(clause.indirect, syntax.Pronoun):
        clitics.append(INDIRECT[clause.indirect.person])
    if isinstance(clause.object, syntax.Pronoun):
        if verb.indirect:
            clitics.append(INDIRECT[clause.object.person])
        else:
            agreement = clause.object.french_gender
            third = clause.object.person == 2
            clitics.append("la" if third and agreement[0] == "f" else DIRECT[clause.object.person])
    elif isinstance(clause.object, syntax.Gap) and not verb.indirect:
        agreement = clause.object.french_gender
    rest = []
    if clause.modal:
        modal = clause.modal.french
        finite = (modal.imperfect if tense == "past" else modal.present)[person]
        rest = [*clitics, verb.infinitive]
        clitics = []
    elif tense == "future":
        finite = verb.future[person]
    elif tense == "perfect" or (tense == "past" and not clause.verb.stative):
        auxiliary = lexicon().be.french if verb.etre else lexicon().avoir
        finite = auxiliary.present[person]
        rest = [_agreeing(verb.participle, subject.french_gender if verb.etre else agreement)]
    else:
        finite = (verb.imperfect if tense == "past" else verb.present)[person]
    words += ["ne", *clitics, finite, "pas"] if clause.negated else [*clitics, finite]
    if clause.frequency:
        words.append(clause.frequency.french)
    return words + rest + _complements(clause)


def _agreeing(participle: str, agreement: tuple[str, bool] | None) -> str:
    if agreement is None:
        return participle
    feminine = "e" if agreement[0] == "f" else ""
    plural = "s" if agreement[1] and not (participle.endswith("s") and not feminine) else ""
    return ("du" if participle == "dû" and feminine + plural else participle) + feminine + plural


def _complements(clause: syntax.Clause) -> list[str]:
    """Lists the words that follow the verb."""
    verb, subject = clause.verb, clause.subject
    words = [clause.manner.french] if clause.manner else []
    if clause.object and not isinstance(clause.object, syntax.Pronoun | syntax.Gap):
        words += [*(["à"] if verb.french.indirect else []), *_nominal(clause.object)]
    if clause.indirect and not isinstance(clause.indirect, syntax.Pronoun | syntax.Gap):
        words += ["à", *_nominal(clause.indirect)]
    if clause.prepositional and verb.preposition:
        words += [*verb.preposition.french, *_nominal(clause.prepositional)]
    gender, plural = subject.french_gender
    if isinstance(clause.predicate, Profession):
        words.append(clause.predicate.french[gender == "f"])
    elif clause.predicate:
        words.append(clause.predicate.french[(gender == "f") + 2 * plural])
    if clause.place and not isinstance(clause.place.phrase, syntax.Gap):
        words += [*clause.place.preposition.french, *_nominal(clause.place.phrase)]
    if clause.time and not clause.time_first:
        words.append(clause.time.french)
    if clause.complement:
        words += ["que", *_clause(clause.complement)]
    return words


def _nominal(nominal: syntax.Nominal) -> list[str]:
    """Lists the words of a noun phrase, or of a pronoun as subject."""
    if isinstance(nominal, syntax.NounPhrase):
        return _noun_phrase(nominal)
    if isinstance(nominal, syntax.Pronoun):
        feminine = nominal.french_gender[0] == "f" and nominal.person in (2, 4)
        return [("elle" if nominal.person == 2 else "elles") if feminine else SUBJECTS[nominal.person]]
    if isinstance(nominal, syntax.Coordination):
        return [*_noun_phrase(nominal.first), "et", *_noun_phrase(nominal.second)]
    return []


def _noun_phrase(phrase: syntax.NounPhrase) -> list[str]:
    noun, owner, plural = phrase.noun, phrase.owner, phrase.plural
    feminine = noun.french_gender == "f"
    form = feminine + 2 * plural
    before, after = [], []
    for adjective in phrase.adjectives:
        word = adjective.french[form]
        if not adjective.precedes:
            after.append(word)
        elif adjective.before_vowel and form == 0:
            before.append(f"{word}*{adjective.before_vowel}")
        else:
            before.append(word)
    words = [*_determiner(phrase, feminine, bool(before)), *before, noun.french[plural], *after]
    if phrase.compound:
        first = phrase.compound[0]
        words += ["de", "la" if first.french_gender == "f" else "le", first.french[0]]
    if owner is not None:
        words += ["de", *_noun_phrase(owner)]
    if phrase.relative:
        words += _relative(phrase, phrase.relative)
    return words


def _determiner(phrase: syntax.NounPhrase, feminine: bool, adjective_follows: bool) -> list[str]:
    determiner, plural = phrase.determiner, phrase.plural
    figures = number(phrase.number, feminine) if phrase.number else []
    if determiner == "name":
        return []
    if determiner == "many":
        return ["beaucoup", "de"]
    if phrase.owner is not None and phrase.owner.determiner == "name":
        determiner = "the"
    if determiner == "":
        if figures:
            return figures
        if plural:
            return ["de" if adjective_follows else "des"]
        return ["de", "la" if feminine else "le"]
    return [DETERMINERS[determiner][2 if plural else feminine], *figures]


def _relative(head: syntax.NounPhrase, relative: syntax.RelativeClause) -> list[str]:
    clause = relative.clause
    if relative.preposition or relative.role == "indirect":
        preposition = relative.preposition.french if relative.preposition else ["à"]
        return [*preposition, *_which(head), *_clause(clause)]
    if relative.role == "object" and clause.verb.french.indirect:
        return ["à", *_which(head), *_clause(clause)]
    return ["qui" if relative.role == "subject" else "que", *_clause(clause)]


def _which(head: syntax.NounPhrase) -> list[str]:
    if head.noun.kind == "P":
        return ["qui"]
    feminine = head.noun.french_gender == "f"
    if head.plural:
        return ["lesquelles" if feminine else "lesquels"]
    return ["laquelle" if feminine else "lequel"]
