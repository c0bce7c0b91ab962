"""Output of `aiayn parse`: bracketed trees, one a line, or drawings of them at a terminal."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nltk.tree import Tree

    from pipeline.evaluation.parser import Parser  # imports torch, which --help does not need
    from pipeline.evaluation.translation import Translator


@dataclass
class TreeWriter:
    """Parses sentences and immediately writes their trees to standard output in UTF-8."""

    parser: "Parser"
    draws: bool = False
    """Says whether trees are drawn, not written in brackets."""

    @property
    def translator(self) -> "Translator":
        """The model of the parser."""
        return self.parser.translator

    def write(self, lines: Sequence[str]) -> None:
        """Writes the tree of each line; a blank line gives a blank line."""
        from pipeline.parsing.trees import bracketed

        for rebuilt in self.parser.parse(lines):
            text = "" if rebuilt is None else drawn(rebuilt.tree) if self.draws else bracketed(rebuilt.tree)
            sys.stdout.buffer.write(text.encode() + b"\n")
        sys.stdout.buffer.flush()


def drawn(tree: "Tree") -> str:
    """Draws a tree with lines, the words at the bottom."""
    from nltk.tree.prettyprinter import TreePrettyPrinter

    return str(TreePrettyPrinter(tree).text(unicodelines=True)).rstrip()
