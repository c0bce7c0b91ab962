"""Reads and writes bracketed trees as in the Penn Treebank, one node after another, however deep they are.

    for placed in read_trees(Path("wsj_0001.mrg")):
        tree = cleaned(placed.tree)    # (S (NP (NNP Ms.) (NNP Haag)) (VP (VBZ plays) (NP (NNP Elianti))) (. .))

No function recurses, since a tree of a thousand levels would exhaust Python's stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pipeline.errors import UserError
from pipeline.text.lines import read_lines

OUTER_LABELS = frozenset(["", "TOP", "ROOT", "S1"])
"""Labels of the bracket around a whole tree, which stands for no constituent."""
TOP = "TOP"
"""Label of a root that is no constituent but holds several; COLLINS.prm does not count it."""
TRACE_TAG = "-NONE-"
MAX_TREE_TOKENS = 1 << 16
"""Most brackets, labels and words of a tree: beyond that a bracket was not closed, and memory would not be bounded."""
_TOKEN = re.compile(r"\(([^()\s]+)\s+([^()\s]+)\s*\)|([()]|[^()\s]+)", re.ASCII)
"""A word in a bracket with its tag, or else a bracket, label or word."""
_FUNCTION = re.compile("[-=]")


@dataclass(slots=True)
class Tree:
    """A constituent, which has children, or a preterminal, which has a word; its label is the word's tag."""

    label: str
    children: list[Tree] = field(default_factory=list)
    word: str = ""


class PlacedTree(NamedTuple):
    """A tree and the place where it begins."""

    tree: Tree
    file: str
    line: int

    @property
    def place(self) -> str:
        """The place as error messages name it."""
        return f"{self.file}, line {self.line}"


def read_trees(path: Path) -> Iterator[PlacedTree]:
    """Yields the trees of a plain or gzip file, which may share a line or span several.

    Raises what `read_lines` raises, and UserError with file and line where brackets or labels are wrong.
    """
    return trees_in(read_lines(path), str(path))


def trees_in(lines: Iterable[str], name: str, lines_before: int = 0) -> Iterator[PlacedTree]:
    """Yields the trees of some lines, before which there are others in their source; error messages call that `name`.

    Raises UserError where a bracket is not closed or not opened, has no label (the outermost needs none) or no content,
    or where a word stands outside a tree or beside another word or constituent.
    """
    open_nodes: list[Tree] = []
    label_expected = False
    first_line = n_tokens = number = 0

    def wrong(problem: str) -> UserError:
        return UserError(f"{name}, line {number}: {problem}; correct the tree")

    for number, line in enumerate(lines, lines_before + 1):
        for tag, word, token in _TOKEN.findall(line):
            n_tokens += 4 if word else 1
            label_missing, label_expected = label_expected, token == "("
            if n_tokens > MAX_TREE_TOKENS:
                raise wrong(f"the bracket opened in line {first_line} is not closed within {MAX_TREE_TOKENS} tokens")
            if word or token == "(":
                if label_missing and len(open_nodes) > 1:
                    raise wrong("a bracket inside a tree has no label")
                if not open_nodes:
                    first_line, n_tokens = number, 1
                elif open_nodes[-1].word:
                    raise wrong(f"a constituent stands beside the word {open_nodes[-1].word!r}")
                open_nodes.append(Tree(tag, word=word))
            elif token != ")":
                if label_missing:
                    open_nodes[-1].label = token
                elif not open_nodes:
                    raise wrong(f"{token!r} stands outside a tree")
                elif open_nodes[-1].word or open_nodes[-1].children:
                    raise wrong(f"the word {token!r} is not alone in its bracket")
                else:
                    open_nodes[-1].word = token
            if word or token == ")":
                if not open_nodes:
                    raise wrong("a closing bracket has no opening one")
                node = open_nodes.pop()
                if not node.word and not node.children:
                    raise wrong(f"({node.label}) holds neither a word nor a constituent")
                if open_nodes:
                    open_nodes[-1].children.append(node)
                else:
                    yield PlacedTree(node, name, first_line)
    if open_nodes:
        raise wrong(f"the bracket opened in line {first_line} is not closed")


def parse(text: str) -> Tree:
    """Returns the one tree of a text. Raises UserError if it is malformed or not the only one."""
    trees = [placed.tree for placed in trees_in(text.split("\n"), "text")]
    if len(trees) != 1:
        raise UserError(f"{len(trees)} trees instead of one: {text!r}")
    return trees[0]


def walk(tree: Tree) -> Iterator[tuple[Tree, bool]]:
    """Yields, from left to right, each node with True and each constituent with False once its children are done."""
    pending = [(tree, True)]
    while pending:
        node, entering = pending.pop()
        yield node, entering
        if entering and not node.word:
            pending.append((node, False))
            pending += [(child, True) for child in reversed(node.children)]


def preterminals(tree: Tree) -> Iterator[Tree]:
    """Yields the parents of the words, from left to right."""
    return (node for node, _ in walk(tree) if node.word)


def words_of(tree: Tree) -> list[str]:
    """Returns the words, from left to right."""
    return [node.word for node in preterminals(tree)]


@lru_cache(1 << 16)
def without_functions(label: str) -> str:
    """Cuts a label at its first "-" or "=", unless it begins with one: NP for NP-SBJ-1, -LRB- for -LRB-."""
    return _FUNCTION.split(label, maxsplit=1)[0] or label


def cleaned(tree: Tree) -> Tree | None:
    """Returns a copy without outer bracket, traces, nodes that only held traces, and functions.

    Returns None if no word is left. An outer bracket around several constituents stays, labelled TOP.
    """
    done: list[list[Tree]] = [[]]
    for node, entering in walk(tree):
        if node.word:
            if node.label != TRACE_TAG:
                done[-1].append(Tree(without_functions(node.label), word=node.word))
        elif entering:
            done.append([])
        elif children := done.pop():
            if node is not tree or node.label not in OUTER_LABELS:
                children = [Tree(without_functions(node.label), children)]
            elif len(children) > 1:
                children = [Tree(TOP, children)]
            done[-1] += children
    return done[0][0] if done[0] else None


def bracketed(tree: Tree) -> str:
    """Writes a tree on one line, so that `read_trees` reads the same tree: (S (NP (NNP Ms.) (NNP Haag)) (VP ...))."""
    parts = []
    for node, entering in walk(tree):
        if node.word:
            parts.append(f" ({node.label} {node.word})")
        else:
            parts.append(f" ({node.label}" if entering else ")")
    return "".join(parts).removeprefix(" ")


def with_tags_of(tree: Tree, tagged: Tree) -> Tree:
    """Returns a copy of `tree` with the part-of-speech tags of `tagged`. Raises ValueError if their words differ."""
    if words_of(tree) != words_of(tagged):
        raise ValueError(f"the words of {bracketed(tree)} are not those of {bracketed(tagged)}")
    copy = parse(bracketed(tree))
    for node, other in zip(preterminals(copy), preterminals(tagged), strict=True):
        node.label = other.label
    return copy


def drawn(tree: Tree) -> str:
    """Draws a tree in box-drawing characters, a node a line, a word beside its tag."""
    lines, pending = [], [(tree, "", "")]
    while pending:
        node, before, before_children = pending.pop()
        lines.append(f"{before}{node.label} {node.word}".rstrip())
        for child in reversed(node.children):
            branch, beside = ("└─ ", "   ") if child is node.children[-1] else ("├─ ", "│  ")
            pending.append((child, before_children + branch, before_children + beside))
    return "\n".join(lines)
