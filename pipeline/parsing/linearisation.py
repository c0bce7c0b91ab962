"""Writes trees as sequences of symbols and rebuilds trees from them (Vinyals et al. 2015, the paper's [37]; §6.3).

    (S (NP (NNP Ms.) (NNP Haag)) (VP (VBZ plays)) (. .))    <->    (S (NP XX XX )NP (VP XX )VP XX )S

A closing bracket names its label, part-of-speech tags become XX, and words are left out: they are the model's input.
With tags, a word's symbol names its own, `(S (NP XX/NNP XX/NNP )NP ...`, for which a model has to know at which word it
is. A model may write any sequence of symbols, so `rebuild` makes a tree of each, over exactly the words of the
input.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pipeline.parsing.trees import TOP, Tree, walk
from pipeline.text.vocabulary import SPACE_SIGN

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

WORD_SYMBOL = "XX"
"""Stands for a word and its part-of-speech tag."""
BRACKET = re.compile(r"([()])([^()\s]+)", re.ASCII)
"""An opening or closing bracket, and its label: "(NP"."""
_TAGGED = re.compile(rf"{WORD_SYMBOL}/([^()\s]+)", re.ASCII)
PUNCTUATION_TAGS = {
    **dict.fromkeys([",", "``", "''", "$", "#", "-LRB-", "-RRB-"]),
    **dict.fromkeys([".", "?", "!"], "."),
    **dict.fromkeys([":", ";", "--", "-", "..."], ":"),
    "`": "``",
    "-LCB-": "-LRB-",
    "-RCB-": "-RRB-",
}
"""Penn tags of the words that are always punctuation or signs; None for the word itself."""


_SPACES = re.compile(rf"[\s{SPACE_SIGN}]")


def one_word(word: str) -> str:
    """Returns a word of a tree as a model reads it, without anything that would separate words there.

    That is any of Unicode's spaces and line separators, and sentencepiece's sign for a space.
    """
    return _SPACES.sub("_", word)


def writes_trees(vocabulary: SentencePieceProcessor) -> bool:
    """Tells the vocabulary of a parser, which has a piece for any word of a tree."""
    return bool(vocabulary.piece_to_id(SPACE_SIGN + WORD_SYMBOL) != vocabulary.unk_id())


class Repair(Enum):
    """What `rebuild` corrects in a sequence of symbols, each value in words."""

    UNKNOWN_SYMBOL = "unknown symbol"
    """A symbol that is neither a bracket with a label nor a word's is ignored."""
    STRAY_CLOSING = "stray closing"
    """A closing bracket whose label is not open is ignored."""
    MISMATCHED_CLOSING = "mismatched closing"
    """A closing bracket whose label is open further out closes all constituents up to that one."""
    UNCLOSED = "unclosed"
    """A constituent still open at the end is closed there."""
    EMPTY_CONSTITUENT = "empty constituent"
    """A constituent without a word is left out."""
    MISSING_WORD = "missing word"
    """A word for which there is no symbol becomes the last child of the root."""
    SURPLUS_WORD = "surplus word"
    """A word's symbol for which there is no word is ignored."""
    SEVERAL_ROOTS = "several roots"
    """All roots become children of TOP, which COLLINS.prm does not count."""


class Rebuilt(NamedTuple):
    """A tree over the words of the input, and how often each repair was needed to make it."""

    tree: Tree
    repairs: Counter[Repair]


def tagged(tag: str) -> str:
    """Returns the symbol of a word with a tag, where tags are written: "XX/NNP"."""
    return f"{WORD_SYMBOL}/{tag}"


def tag_of(symbol: str) -> str | None:
    """Returns the tag of a symbol that stands for a word, XX where it does not tell; None for other symbols."""
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
    """Returns a tree over exactly `words` for any symbols; for those of a tree with that many words, the same tree.

    Tags are those that the symbols name, XX where they name none, and those of `PUNCTUATION_TAGS`. Without a word or a
    root the tree is TOP over what there is.
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
