"""A synchronous grammar: each derivation yields an English sentence, its tree, and its German and French translations.

    >>> derivation = derive(seed=1, number=0)
    >>> derivation.english, derivation.german, derivation.french, derivation.tree

`words.toml` lists the lemmas, `inflection` and `lexicon` inflect them, `rules` draws abstract syntax (`syntax`), and
`english`, `german` and `french` realise it as sentences.
"""

from dataclasses import dataclass
from functools import cached_property
from random import Random

from pipeline.corpora.grammar import english, french, german
from pipeline.corpora.grammar.rules import draw
from pipeline.corpora.grammar.syntax import Sentence
from pipeline.corpora.grammar.word_by_word import word_by_word

__all__ = ["Derivation", "derive", "word_by_word"]


@dataclass(frozen=True)
class Derivation:
    """A sentence in abstract syntax, realised on demand."""

    sentence: Sentence

    @cached_property
    def tree(self) -> str:
        """Penn-style bracketed English tree on one line, with `tokens` as leaves."""
        return english.tree(self.sentence)

    @property
    def tokens(self) -> list[str]:
        """English words and punctuation, split as in the Penn Treebank."""
        return english.tokens(self.tree)

    @cached_property
    def english(self) -> str:
        """The English sentence."""
        return english.detokenised(self.tokens)

    @property
    def german(self) -> str:
        """Its German translation."""
        return german.text(self.sentence)

    @property
    def french(self) -> str:
        """Its French translation."""
        return french.text(self.sentence)


def derive(seed: int, number: int) -> Derivation:
    """Returns derivation `number` of the stream `seed`, a pure function of the two (`number` must be below 2**64)."""
    return Derivation(draw(Random((seed << 64) + number)))
