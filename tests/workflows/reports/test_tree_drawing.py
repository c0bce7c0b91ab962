"""Drawings of trees: what is in them, and what is marked."""

import re
from xml.etree import ElementTree

import pytest
from nltk.tree import Tree

from workflows.reports.tree_drawing import MARK, constituents, tree_drawing

GOLD = Tree.fromstring("(S (NP (DT the) (NN man)) (VP (VBZ hears) (NP (DT a) (NN dog))) (. .))")


def texts(svg: str) -> list[tuple[str, bool]]:
    """Labels and words with whether each is marked, in the order of the drawing."""
    return [
        (node.text or "", node.get("style") == f"fill: {MARK}") for node in ElementTree.fromstring(svg).iter("text")
    ]


def test_equal_trees_have_no_mark() -> None:
    """Every label and word is there once, tags are not, and nothing is marked."""
    found = texts(tree_drawing(GOLD, GOLD, "gold"))
    assert [text for text, _ in found] == ["S", "NP", "the", "man", "VP", "hears", "NP", "a", "dog", "."]
    assert not any(marked for _, marked in found)


def test_only_what_the_other_tree_lacks_is_marked() -> None:
    """Another label over the same words, and the same label over other words; each tree has its own marks."""
    other = Tree.fromstring("(S (PP (DT the) (NN man)) (VP (VBZ hears) (NP (DT a)) (NN dog)) (. .))")
    assert [text for text, marked in texts(tree_drawing(other, GOLD, "parse")) if marked] == ["PP", "NP"]
    assert [text for text, marked in texts(tree_drawing(GOLD, other, "gold")) if marked] == ["NP", "NP"]


def test_a_label_above_itself_is_marked_once_where_the_other_tree_has_one() -> None:
    """Constituents are compared as often as they occur."""
    twice = Tree.fromstring("(NP (NP (NN dogs)))")
    assert constituents(twice) == {("NP", 0, 1): 2}
    assert sum(marked for _, marked in texts(tree_drawing(twice, Tree.fromstring("(NP (NN dogs))"), "twice"))) == 1


def test_words_are_escaped() -> None:
    """A word that is markup stays a word."""
    svg = tree_drawing(Tree("S", [Tree("NN", ["<b>&"])]), GOLD, 'a "title"')
    assert ("<b>&", False) in texts(svg)


@pytest.mark.parametrize("depth", [1, 3000])
def test_words_stand_beside_each_other_however_deep_the_tree(depth: int) -> None:
    """Words do not overlap, and a tree beyond Python's recursion is drawn."""
    tree = Tree("NP", [Tree("DT", ["the"]), Tree("NN", ["grandmother"])])
    for _ in range(depth):
        tree = Tree("X", [tree])
    svg = str(tree_drawing(tree, GOLD, "deep"))
    first, second = (float(x) for x in re.findall(r'<text x="([\d.]+)"[^>]*>(?:the|grandmother)<', svg))
    assert second - first > (len("the") + len("grandmother")) / 2 * 6
