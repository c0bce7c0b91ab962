"""Writes trees as symbol sequences and rebuilds trees from them (Vinyals et al. 2015, the paper's [37]; §6.3).

    (S (NP (NNP Ms.) (NNP Haag)) (VP (VBZ plays)) (. .))    <->    (S (NP XX XX )NP (VP XX )VP XX )S

A closing bracket carries its label, part-of-speech tags become XX, and words are omitted, since they are the model's
input. With tags, a word's symbol carries its tag, `(S (NP XX/NNP XX/NNP )NP ...`, for which a model must track its
position in the input. A model may write any sequence of symbols; `rebuild` turns each into a tree over exactly the
words of the input.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pipeline.parsing.trees import PUNCTUATION_TAGS, TOP, Tree, walk
from pipeline.text.normalisation import normalised
from pipeline.text.vocabulary import SPACE_SIGN

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

WORD_SYMBOL = "XX"
"""Stands for a word and its part-of-speech tag."""
BRACKET = re.compile(r"([()])([^()\s]+)", re.ASCII)
"""A bracket and its label: "(NP"."""
_TAGGED = re.compile(rf"{WORD_SYMBOL}/([^()\s]+)", re.ASCII)
_SPACES = re.compile(rf"[\s{SPACE_SIGN}]")


def one_word(word: str) -> str:
    """Returns a word as a model reads it, without characters that would split it.

    These are Unicode spaces and line separators, and sentencepiece's space sign. Never empty.
    """
    return normalised(_SPACES.sub("_", word)) or "_"


def writes_trees(vocabulary: SentencePieceProcessor) -> bool:
    """Whether the vocabulary is a parser's, with a piece for any word of a tree."""
    return bool(vocabulary.piece_to_id(SPACE_SIGN + WORD_SYMBOL) != vocabulary.unk_id())


class Repair(Enum):
    """Corrections that `rebuild` makes to a sequence of symbols."""

    UNKNOWN_SYMBOL = "unknown symbol"
    """Ignores a symbol that is neither a labelled bracket nor a word's."""
    STRAY_CLOSING = "stray closing"
    """Ignores a closing bracket whose label is not open."""
    MISMATCHED_CLOSING = "mismatched closing"
    """A closing bracket whose label is open further out closes all constituents up to that one."""
    UNCLOSED = "unclosed"
    """Closes a constituent still open at the end."""
    EMPTY_CONSTITUENT = "empty constituent"
    """Drops a constituent without a word."""
    MISSING_WORD = "missing word"
    """Appends a word without a symbol to the root."""
    SURPLUS_WORD = "surplus word"
    """Ignores a word symbol without a word."""
    SEVERAL_ROOTS = "several roots"
    """Makes all roots children of TOP, which COLLINS.prm ignores."""


class Rebuilt(NamedTuple):
    """A tree over the words of the input, and the number of repairs by kind."""

    tree: Tree
    repairs: Counter[Repair]


def tagged(tag: str) -> str:
    """Returns the symbol of a word with a tag: "XX/NNP"."""
    return f"{WORD_SYMBOL}/{tag}"


def tag_of(symbol: str) -> str | None:
    """Returns the tag of a word symbol, XX if it has none; None for other symbols."""
    if symbol == WORD_SYMBOL:
        return WORD_SYMBOL
    tag = _TAGGED.fullmatch(symbol)
    return tag[1] if tag else None


def linearise(tree: Tree, with_tags: bool = False) -> list[str]:
    """Returns the symbols of a cleaned tree: "(S", "XX", ")S"; with tags "(S", "XX/NNP", ")S"."""
    symbols = []
    for node, entering in walk(tree):
        if node.word:
            symbols.append(tagged(node.label) if with_tags else WORD_SYMBOL)
        else:
            symbols.append(f"({node.label}" if entering else f"){node.label}")
    return symbols


def rebuild(symbols: Sequence[str], words: Sequence[str]) -> Rebuilt:
    """Returns a tree over exactly `words` for any symbols. Inverse of `linearise` if the number of words matches.

    Tags are taken from the symbols, else XX, except for `PUNCTUATION_TAGS`. Without a word or a root, the tree is TOP
    over what there is.
    """
    repairs: Counter[Repair] = Counter()
    roots: list[Tree] = []
    open_nodes: list[Tree] = []
    open_labels: Counter[str] = Counter()
    used = 0

    def add(node: Tree) -> None:
        (open_nodes[-1].children if open_nodes else roots).append(node)

    def close() -> None:
        node = open_nodes.pop()
        open_labels[node.label] -= 1
        if node.children:
            add(node)
        else:
            repairs[Repair.EMPTY_CONSTITUENT] += 1

    for symbol in symbols:
        bracket, tag = BRACKET.fullmatch(symbol), tag_of(symbol)
        if tag is not None:
            if used < len(words):
                add(_preterminal(words[used], tag))
                used += 1
            else:
                repairs[Repair.SURPLUS_WORD] += 1
        elif bracket is None:
            repairs[Repair.UNKNOWN_SYMBOL] += 1
        elif bracket[1] == "(":
            open_nodes.append(Tree(bracket[2]))
            open_labels[bracket[2]] += 1
        elif not open_labels[bracket[2]]:
            repairs[Repair.STRAY_CLOSING] += 1
        else:
            if open_nodes[-1].label != bracket[2]:
                repairs[Repair.MISMATCHED_CLOSING] += 1
                while open_nodes[-1].label != bracket[2]:
                    close()
            close()
    while open_nodes:
        repairs[Repair.UNCLOSED] += 1
        close()
    repairs[Repair.SEVERAL_ROOTS] += len(roots) > 1
    repairs[Repair.MISSING_WORD] += len(words) - used
    missing = [_preterminal(word) for word in words[used:]]
    if len(roots) == 1 and not (missing and roots[0].word):
        root = roots[0]
        root.children += missing
    else:
        root = Tree(TOP, [*roots, *missing])
    return Rebuilt(root, +repairs)


def _preterminal(word: str, tag: str = WORD_SYMBOL) -> Tree:
    return Tree(PUNCTUATION_TAGS.get(word, tag) or word, word=word)
