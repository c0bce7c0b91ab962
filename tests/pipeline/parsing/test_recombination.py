"""pipeline.parsing.recombination: new trees consist of the treebank's parts and differ between parts and seeds."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.parsing.recombination import MAX_WORDS, Recombination, RecombinationSettings
from pipeline.parsing.splits import Selection
from pipeline.parsing.trees import Tree, bracketed, cleaned, walk, words_of


def edges(trees: Sequence[Tree]) -> Counter[tuple[str, ...]]:
    """Counts what recombination preserves: rules, also below their parent's label, and words with their tags."""
    counts: Counter[tuple[str, ...]] = Counter()
    for tree in trees:
        for node, entering in walk(tree):
            if node.word:
                counts["word", node.label, node.word] += 1
            elif entering:
                counts["rule", node.label, *(child.label for child in node.children)] += 1
                for child in node.children:
                    if not child.word:
                        grandchildren = (grandchild.label for grandchild in child.children)
                        counts["rule below", node.label, child.label, *grandchildren] += 1
    return counts


def drawn(sample: list[Selection], part: int = 0, trees: int = 300, **settings: Any) -> list[Tree]:
    recombination = Recombination(sample, RecombinationSettings(trees=trees, **settings), part, trees)
    return [placed.tree for placed in recombination.read()]


@pytest.fixture(scope="module")
def sample(data: Path) -> list[Selection]:
    return [Selection(data / "treebank" / "wsj_0001-0199.mrg.gz", 0, 500)]


@pytest.fixture(scope="module")
def gold(sample: list[Selection]) -> list[Tree]:
    trees = (cleaned(placed.tree) for selection in sample for placed in selection.read())
    return [tree for tree in trees if tree is not None]


def test_new_trees_of_old_parts(sample: list[Selection], gold: list[Tree]) -> None:
    """Most trees are new, but every rule, rule below a label, and word with its tag occurs in the treebank."""
    trees = drawn(sample)
    assert len(trees) == 300
    assert edges(trees).keys() <= edges(gold).keys()
    known = {bracketed(tree) for tree in gold}
    whole = drawn(sample, constituents=0)
    assert sum(bracketed(tree) in known for tree in whole) < 30
    assert max(len(words_of(tree)) for tree in trees + whole) <= MAX_WORDS
    assert sum(len(words_of(tree)) for tree in whole) / 300 == pytest.approx(24, abs=4)  # like the treebank's


def test_each_part_is_drawn_by_its_own_seed(sample: list[Selection]) -> None:
    first = drawn(sample, trees=20)
    assert drawn(sample, trees=20) == first
    assert drawn(sample, 1, trees=20) != first
    assert drawn(sample, trees=20, seed=2) != first
