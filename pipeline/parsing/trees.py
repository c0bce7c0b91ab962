"""Reads and writes bracketed trees in Penn Treebank format, iteratively, so at any depth.

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
from types import MappingProxyType
from typing import NamedTuple

from pipeline.errors import UserError
from pipeline.text.lines import read_lines

OUTER_LABELS = frozenset(["", "TOP", "ROOT", "S1"])
"""Labels of the bracket around a whole tree, which is not a constituent."""
TOP = "TOP"
"""Label of an artificial root over several constituents; COLLINS.prm ignores it."""
TRACE_TAG = "-NONE-"
PUNCTUATION_TAGS = {
    **dict.fromkeys([",", "``", "''", "$", "#", "-LRB-", "-RRB-"]),
    **dict.fromkeys([".", "?", "!"], "."),
    **dict.fromkeys([":", ";", "--", "-", "..."], ":"),
    "`": "``",
    "-LCB-": "-LRB-",
    "-RCB-": "-RRB-",
}
"""Penn tags of words that are always punctuation or symbols; None for the word itself."""
WRITTEN_BRACKETS = MappingProxyType(str.maketrans({"(": "-LRB-", ")": "-RRB-", "{": "-LCB-", "}": "-RCB-"}))
"""How words have brackets, which would be a tree's; for `str.translate`."""
MAX_TREE_TOKENS = 1 << 16
"""Maximum brackets, labels and words of a tree: more mean an unclosed bracket, and unbounded memory."""
_TOKEN = re.compile(r"\(([^()\s]+)\s+([^()\s]+)\s*\)|([()]|[^()\s]+)", re.ASCII)
"""A tagged word in its bracket, or else a bracket, label or word."""
FUNCTION = re.compile("[-=]")


@dataclass(slots=True)
class Tree:
    """A constituent with children, or a preterminal with a word, whose label is the tag."""

    label: str
    children: list[Tree] = field(default_factory=list)
    word: str = ""


class PlacedTree(NamedTuple):
    """A tree and its position in a file."""

    tree: Tree
    file: str
    line: int

    @property
    def place(self) -> str:
        """The position, for messages."""
        return f"{self.file}, line {self.line}"


def read_trees(path: Path) -> Iterator[PlacedTree]:
    """Yields the trees of a plain or gzip file; trees may share a line or span several.

    Raises UserError like `read_lines`, and with file and line for wrong brackets or labels.
    """
    return trees_in(read_lines(path), str(path))


def trees_in(lines: Iterable[str], name: str) -> Iterator[PlacedTree]:
    """Yields the trees in `lines` of a source called `name` in messages.

    Raises UserError if a bracket is not closed or not opened, has no label (except the outermost) or no content, or if
    a word is outside a tree or beside another word or constituent.
    """
    open_nodes: list[Tree] = []
    label_expected = False
    first_line = n_tokens = number = 0

    def wrong(problem: str) -> UserError:
        return UserError(f"{name}, line {number}: {problem}; correct the tree")

    for number, line in enumerate(lines, 1):
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
                    raise wrong(f"({node.label}) contains neither a word nor a constituent")
                if open_nodes:
                    open_nodes[-1].children.append(node)
                else:
                    yield PlacedTree(node, name, first_line)
    if open_nodes:
        raise wrong(f"the bracket opened in line {first_line} is not closed")


def parse(text: str) -> Tree:
    """Parses a text that holds exactly one tree. Raises UserError if it is malformed or not the only one."""
    trees = [placed.tree for placed in trees_in(text.split("\n"), "text")]
    if len(trees) != 1:
        raise UserError(f"{len(trees)} trees instead of one: {text!r}")
    return trees[0]


def walk(tree: Tree) -> Iterator[tuple[Tree, bool]]:
    """Yields nodes left to right: each with True, and each constituent again with False after its children."""
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
    """Truncates a label at its first "-" or "=", unless it begins with one: NP for NP-SBJ-1, -LRB- for -LRB-."""
    return FUNCTION.split(label, maxsplit=1)[0] or label


def cleaned(tree: Tree) -> Tree | None:
    """Returns a copy without outer bracket, traces, nodes of only traces, and functions.

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
    """Writes a tree on one line; inverse of `read_trees`: (S (NP (NNP Ms.) (NNP Haag)) (VP ...))."""
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
    """Draws a tree in box-drawing characters, one node a line, words beside their tags."""
    lines, pending = [], [(tree, "", "")]
    while pending:
        node, before, before_children = pending.pop()
        lines.append(f"{before}{node.label} {node.word}".rstrip())
        for child in reversed(node.children):
            branch, beside = ("└─ ", "   ") if child is node.children[-1] else ("├─ ", "│  ")
            pending.append((child, before_children + branch, before_children + beside))
    return "\n".join(lines)
