"""Inflects nouns, adjectives and verbs of the three languages by rule, from principal parts in `words.toml`.

Persons are indices: 0 I, 1 you (singular), 2 he/she/it, 3 we, 4 they. Cases are indices too, nominative to genitive.
German genders are "m", "f", "n", and "p" for any plural.
"""

import re
from typing import NamedTuple

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
Five = tuple[str, str, str, str, str]
Four = tuple[str, str, str, str]

WEAK_ENDINGS: dict[str, Four] = {
    "m": ("e", "en", "en", "en"),
    "f": ("e", "e", "en", "en"),
    "n": ("e", "e", "en", "en"),
    "p": ("en", "en", "en", "en"),
}
"""Endings of adjectives after der, dieser, jeder."""
STRONG_ENDINGS: dict[str, Four] = {
    "m": ("er", "en", "em", "en"),
    "f": ("e", "e", "er", "er"),
    "n": ("es", "es", "em", "en"),
    "p": ("e", "e", "en", "er"),
}
"""Endings of adjectives without an article."""
MIXED_ENDINGS = {**WEAK_ENDINGS, "m": ("er", "en", "en", "en"), "n": ("es", "es", "en", "en")}
"""Endings of adjectives after ein, kein, mein."""
THE: dict[str, Four] = {
    "m": ("der", "den", "dem", "des"),
    "f": ("die", "die", "der", "der"),
    "n": ("das", "das", "dem", "des"),
    "p": ("die", "die", "den", "der"),
}
THIS_ENDINGS: dict[str, Four] = {**STRONG_ENDINGS, "m": ("er", "en", "em", "es"), "n": ("es", "es", "em", "es")}
A_ENDINGS: dict[str, Four] = {**THIS_ENDINGS, "m": ("", "en", "em", "es"), "n": ("", "", "em", "es")}
"""Endings of ein, mein, unser etc."""


class EnglishVerb(NamedTuple):
    """The forms of an English verb; `particle` is e.g. "on" in "turn on"."""

    base: str
    third: str
    past: str
    participle: str
    gerund: str
    particle: str


class GermanVerb(NamedTuple):
    """The forms of a German verb; `present` and `past` exclude the separable prefix."""

    infinitive: str
    present: Five
    past: Five
    participle: str
    prefix: str
    sein: bool
    """Whether the perfect takes sein instead of haben."""


class FrenchVerb(NamedTuple):
    """The forms of a French verb."""

    infinitive: str
    present: Five
    imperfect: Five
    future: Five
    participle: str
    etre: bool
    """Whether the passé composé takes être instead of avoir."""
    reflexive: bool
    indirect: bool
    """Whether its only object takes à."""


def english_plural(noun: str) -> str:
    """Forms a regular plural (boxes, stories); `words.toml` has irregular ones (men)."""
    if re.search(r"[^aeiou]y$", noun):
        return noun[:-1] + "ies"
    return noun + ("es" if re.search(r"(s|x|z|ch|sh|to)$", noun) else "s")


def english_verb(base: str, past: str = "", participle: str = "", particle: str = "") -> EnglishVerb:
    """Forms missing past and participle by rule, with the spelling rules for -y and silent -e."""
    consonant_y = bool(re.search(r"[^aeiou]y$", base))
    third = "has" if base == "have" else "goes" if base == "go" else english_plural(base)
    past = past or (base[:-1] + "ied" if consonant_y else base + ("d" if base.endswith("e") else "ed"))
    if base in ("run", "put", "get", "forget"):
        gerund = base + base[-1] + "ing"
    elif base.endswith("e") and not base.endswith(("ee", "be")):
        gerund = base[:-1] + "ing"
    else:
        gerund = base + "ing"
    return EnglishVerb(base, third, past, participle or past, gerund, particle)


def german_noun(word: str, gender: str, plural: str, weak: bool) -> tuple[Four, Four]:
    """Declines singular and plural through the four cases."""
    if weak:  # der Junge, den Jungen: oblique cases equal the plural
        singular = (word, plural, plural, plural)
    elif gender == "f":
        singular = (word,) * 4
    else:
        short = len(re.findall(r"[aeiouäöüy]+", word, re.I)) == 1
        hissing = re.search(r"(s|ß|x|z|sch|st)$", word)
        ending = "es" if hissing or (short and word not in ("Tee", "Ei")) else "s"
        singular = (word, word, word, word + ending)
    dative = plural if plural.endswith(("n", "s", "-")) else plural + "n"
    return singular, (plural, plural, dative, plural)


def german_verb(
    infinitive: str, third: str = "", past: str = "", participle: str = "", sein: bool = False
) -> GermanVerb:
    """Conjugates a verb, as a weak one if only the infinitive is given; `an+rufen` marks a separable prefix."""
    prefix, _, simple = infinitive.rpartition("+")
    stem = simple[:-2] if simple.endswith("en") else simple[:-1]
    link = "e" if re.search(r"([dt]|[^aeiouäöülrhmn][mn])$", stem) else ""
    third = third or stem + link + "t"
    past = past or stem + link + "te"
    if not participle:
        bare = re.match(r"be|ver|er|ent|zer|ge(?!h)", stem) or stem.endswith("ier")
        participle = ("" if bare else "ge") + stem + link + "t"
    first = stem + "e" if third.endswith("t") or simple == "werden" else third
    body = third[:-1] if third.endswith("t") else third
    second = body + ("t" if body.endswith(("s", "ß", "z")) else "st")
    present = (first, second, third, simple, simple)
    if simple == "sein":
        present = ("bin", "bist", "ist", "sind", "sind")
    elif simple == "werden":
        present = ("werde", "wirst", "wird", "werden", "werden")
    if past.endswith("e"):
        second, plural = past + "st", past + "n"
    else:
        second = past + ("est" if past.endswith(("d", "t", "s", "ß")) else "st")
        plural = past + "en"
    pasts = (past, second, past, plural, plural)
    return GermanVerb(prefix + simple, present, pasts, prefix + participle, prefix, sein)


def french_plural(word: str) -> str:
    """Forms a regular plural, or one like gâteaux; words in -s, -x, -z are unchanged."""
    if word.endswith(("s", "x", "z")):
        return word
    return word + ("x" if word.endswith(("eau", "eu")) and word != "bleu" else "s")


def french_verb(parts: list[str], etre: bool = False, reflexive: bool = False, indirect: bool = False) -> FrenchVerb:
    """Conjugates a verb; verbs in -er and those like choisir are regular.

    `acheter=achèt` specifies the stem before silent endings, `envoyer=envoi~enverr` also the future stem.
    """
    infinitive, _, future = parts[0].partition("~")
    infinitive, _, light = infinitive.partition("=")
    stem = infinitive[:-2]
    if len(parts) > 1:
        first, third, we, they, participle, future = parts[1:]
        first, _, second = first.partition("/")
        second = second or first + ("s" if first.endswith("e") else "")
    elif infinitive.endswith("ir"):
        first = second = stem + "is"
        third, we, they, participle, future = stem + "it", stem + "issons", stem + "issent", stem + "i", infinitive
    else:
        future = future or (light + "er" if light else infinitive)
        light = light or stem
        first, second, third, they = light + "e", light + "es", light + "e", light + "ent"
        we = stem + ("eons" if stem.endswith("g") else "ons")
        participle = stem + "é"
    past = "ét" if infinitive == "être" else we[:-3]
    return FrenchVerb(
        infinitive,
        (first, second, third, we, they),
        (past + "ais", past + "ais", past + "ait", past.removesuffix("e") + "ions", past + "aient"),
        (future + "ai", future + "as", future + "a", future + "ons", future + "ont"),
        participle,
        etre,
        reflexive,
        indirect,
    )


def french_adjective(masculine: str, feminine: str = "") -> Four:
    """Returns masculine and feminine singular, then masculine and feminine plural."""
    feminine = feminine or masculine + ("" if masculine.endswith("e") else "e")
    return masculine, feminine, french_plural(masculine), feminine + "s"
