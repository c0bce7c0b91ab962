"""Recombines a treebank's constituents into new training trees, for treebanks too small on their own.

    trees = Recombination(selections, RecombinationSettings(trees=60_000), part=0, trees=20_000)
    next(trees.read())

Each new tree is a training tree with some constituents and words replaced by others of the treebank: a constituent by
one with the same label and parent label, a word by one with the same tag. This is the substructure substitution of Shi,
Livescu and Gimpel (2021, "Substructure Substitution: Structured Data Augmentation for NLP"), applied recursively. A
share of the examples are constituents instead of whole sentences: shorter, so learned sooner.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from pydantic import Field

from pipeline.parsing.splits import Selection
from pipeline.parsing.trees import PlacedTree, Tree, cleaned, walk, words_of
from pipeline.settings import Count, Seed, Settings

MAX_WORDS = 50
"""Longer trees, which nested substitutions may yield, are discarded."""
MIN_WORDS_OF_CONSTITUENT, MAX_WORDS_OF_CONSTITUENT = 2, 20
"""Size limits of constituents used as examples of their own."""
_ROOT = ""


class RecombinationSettings(Settings):
    """The number of trees, and their distance from the treebank's."""

    trees: Count
    replaced_constituents: float = Field(0.25, ge=0, lt=1)
    """Probability that a constituent below the root is replaced."""
    replaced_words: float = Field(0.15, ge=0, le=1)
    """Probability that a word is replaced."""
    constituents: float = Field(0.5, ge=0, le=1)
    """Share of examples built from a constituent of 2 to 20 words instead of a whole tree."""
    seed: Seed = 1


@dataclass(frozen=True)
class Recombination:
    """Part number `part` of the new trees, `trees` of them; each part has its own seed."""

    treebank: Sequence[Selection]
    settings: RecombinationSettings
    part: int
    trees: int

    def read(self) -> Iterator[PlacedTree]:
        """Yields the new trees; holds the treebank in memory. Raises UserError if one of its trees is malformed."""
        source = _Constituents(chain.from_iterable(selection.read() for selection in self.treebank))
        draw = random.Random(f"{self.settings.seed} {self.part}")
        number = 0
        while source.trees and number < self.trees:
            small = draw.random() < self.settings.constituents and source.small
            tree = source.recombined(draw.choice(small or source.trees), self.settings, draw)
            if len(words_of(tree)) <= MAX_WORDS:
                number += 1
                yield PlacedTree(tree, "recombined trees", number)


class _Constituents:
    """The trees of a treebank, and substitutes for their constituents and words."""

    def __init__(self, placed_trees: Iterator[PlacedTree]) -> None:
        self.trees: list[Tree] = []
        self.small: list[Tree] = []
        self._constituents: dict[tuple[str, str], list[Tree]] = defaultdict(list)
        """By label and parent label."""
        self._words: dict[str, list[str]] = defaultdict(list)
        """By tag."""
        for placed in placed_trees:
            tree = cleaned(placed.tree)
            # Constituents longer than any new tree would be drawn in vain.
            if tree is not None and len(words_of(tree)) <= MAX_WORDS:
                self.trees.append(tree)
                self._collect(tree)

    def _collect(self, tree: Tree) -> None:
        for node, entering in walk(tree):
            if not entering:
                continue
            if node.word:
                self._words[node.label].append(node.word)
                continue
            for child in node.children:
                if not child.word:
                    self._constituents[child.label, node.label].append(child)
            if node is not tree and MIN_WORDS_OF_CONSTITUENT <= len(words_of(node)) <= MAX_WORDS_OF_CONSTITUENT:
                self.small.append(node)

    def recombined(self, tree: Tree, settings: RecombinationSettings, draw: random.Random) -> Tree:
        """Returns a copy of a tree in which words and constituents below the root are replaced."""
        done: list[list[Tree]] = [[]]
        pending: list[tuple[Tree, str, bool]] = [(tree, _ROOT, True)]
        while pending:
            node, parent, entering = pending.pop()
            if node.word:
                replaced = draw.random() < settings.replaced_words
                word = draw.choice(self._words[node.label]) if replaced else node.word
                done[-1].append(Tree(node.label, word=word))
            elif entering:
                if parent != _ROOT and draw.random() < settings.replaced_constituents:
                    node = draw.choice(self._constituents[node.label, parent])
                done.append([])
                pending.append((node, parent, False))
                pending += [(child, node.label, True) for child in reversed(node.children)]
            else:
                children = done.pop()
                done[-1].append(Tree(node.label, children))
        return done[0][0]
