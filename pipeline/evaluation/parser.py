"""Parses sentences in one process (§6.3): translates words into symbols and rebuilds trees from them.

    parser = Parser(folder, PARSING, "cpu")
    parser.parse(["The man hears the dog .", ""])    # [Rebuilt(tree, repairs), None]

A sentence is given as words separated by spaces, as in a treebank. Parentheses and braces become -LRB-, -RRB-, -LCB-
and -RCB-, as in the Penn Treebank, since they would be brackets in a tree.
"""

from collections.abc import Sequence
from pathlib import Path

from pipeline.artifacts import CHOICE_FILE, ChosenParser
from pipeline.errors import UserError
from pipeline.evaluation.translation import Translator
from pipeline.parsing.linearisation import WORD_SYMBOL, Rebuilt, one_word, rebuild, writes_trees
from pipeline.parsing.trees import WRITTEN_BRACKETS, bracketed
from pipeline.settings import PARSING, DecodingSettings


def settings_of(checkpoint_folder: Path) -> DecodingSettings:
    """Returns the search chosen for a parser on the dev set, or else the paper's."""
    return ChosenParser(checkpoint_folder).search if (checkpoint_folder / CHOICE_FILE).exists() else PARSING


class Parser(Translator):
    """A model that translates words into tree symbols. Raises UserError if the checkpoint is not a parser."""

    def _load(self, folder: Path) -> None:
        super()._load(folder)
        if not writes_trees(self._vocabulary):
            raise UserError(
                f"{folder} is not a parser: its vocabulary has no piece {WORD_SYMBOL}; "
                "name a folder parser_choice-* made by aiayn table4"
            )

    def parse(self, lines: Sequence[str]) -> list[Rebuilt | None]:
        """Returns a tree over each line's words, with its repairs; None for a blank line."""
        sentences = [line.translate(WRITTEN_BRACKETS).split() for line in lines]
        outputs = self.translations([" ".join(map(one_word, words)) for words in sentences])
        return [
            rebuild(output.text.split(), words) if words else None
            for words, output in zip(sentences, outputs, strict=True)
        ]

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Returns each line's bracketed tree; empty for a blank line."""
        return [bracketed(parsed.tree) if parsed else "" for parsed in self.parse(lines)]
