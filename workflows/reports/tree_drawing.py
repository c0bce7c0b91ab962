"""Draws constituency trees as SVG that stands inside an HTML page and takes its text colour.

    tree_drawing(parsed, gold, "parse")

Words stand side by side at the bottom, and each constituent above the words it covers. A constituent that the other
tree has not got, with the same label over the same words, is marked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from markupsafe import Markup

from pipeline.parsing.trees import is_preterminal, walk

if TYPE_CHECKING:
    from nltk.tree import Tree

MARK = "var(--warn, #cf4257)"
"""The colour of constituents that differ: the page's own, which is legible on its light and on its dark ground."""
CHARACTER_PX, GAP_PX, LEVEL_PX, LINE_PX = 7.2, 12.0, 34.0, 14.0
"""Width of a character, distance between words, distance between levels, height of a line of text."""
Constituent = tuple[str, int, int]
"""A label, the number of its first word from 0, and the number of the word after its last."""


@dataclass
class _Placed:
    """A node of a drawing."""

    label: str
    depth: int
    is_word: bool
    x_px: float = 0.0
    first: int = 0
    children: list[_Placed] = field(default_factory=list)
    constituent: Constituent | None = None


def constituents(tree: Tree) -> Counter[Constituent]:
    """Returns the constituents of a tree, each with its number: a label may stand above itself over the same words."""
    found: Counter[Constituent] = Counter()
    starts: list[int] = []
    n_words = 0
    for node, entering in walk(tree):
        if is_preterminal(node):
            n_words += 1
        elif entering:
            starts.append(n_words)
        else:
            found[node.label(), starts.pop(), n_words] += 1
    return found


def tree_drawing(tree: Tree, other: Tree, title: str) -> Markup:
    """Returns an SVG of `tree`, in which the constituents that `other` has not got are marked."""
    nodes = _placed(tree)
    words = [node for node in nodes if node.is_word]
    x_px = GAP_PX
    for word in words:
        width_px = CHARACTER_PX * len(word.label)
        word.x_px = x_px + width_px / 2
        x_px += width_px + GAP_PX
    for node in reversed(nodes):  # children stand after their parents
        if not node.is_word:
            node.x_px = (node.children[0].x_px + node.children[-1].x_px) / 2
    bottom = max(node.depth for node in nodes if node.is_word)
    height_px = (bottom + 1) * LEVEL_PX
    remaining = constituents(other)
    parts = []
    for node in nodes:
        y_px = _y_px(node, bottom)
        for child in node.children:
            end_px = _y_px(child, bottom) - LINE_PX
            parts.append(
                Markup('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(
                    node.x_px, y_px + 4, child.x_px, end_px
                )
            )
        differs = False
        if node.constituent is not None:
            differs = remaining[node.constituent] < 1
            remaining[node.constituent] -= 1
        style = Markup(' style="fill: {}" font-weight="700"').format(MARK) if differs else Markup("")
        parts.append(Markup('<text x="{:.1f}" y="{:.1f}"{}>{}</text>').format(node.x_px, y_px, style, node.label))
    shape = Markup('<svg role="img" aria-label="{}" class="tree" viewBox="0 0 {:.0f} {:.0f}" width="{:.0f}">').format(
        title, x_px, height_px, x_px
    )
    return shape + Markup("").join(parts) + Markup("</svg>")


def _y_px(node: _Placed, bottom: int) -> float:
    """Words stand at the bottom."""
    return LINE_PX + LEVEL_PX * (bottom if node.is_word else node.depth)


def _placed(tree: Tree) -> list[_Placed]:
    """Returns the nodes of a drawing, parents before children; the word of a preterminal without its tag."""
    nodes: list[_Placed] = []
    path: list[_Placed] = []
    n_words = 0
    for node, entering in walk(tree):
        if not entering:
            done = path.pop()
            done.constituent = done.label, done.first, n_words
            continue
        is_word = is_preterminal(node)
        made = _Placed(node[0] if is_word else node.label(), len(path), is_word, first=n_words)
        if path:
            path[-1].children.append(made)
        nodes.append(made)
        if is_word:
            n_words += 1
        else:
            path.append(made)
    return nodes
