"""Parses sentences in one process (§6.3): translates words into symbols, and rebuilds trees from these.

    parser = Parser(folder, PARSING, "cpu")
    parser.parse(["The man hears the dog .", ""])    # [Rebuilt(tree, repairs), None]

A sentence is its words with spaces between them, as in a treebank. Parentheses and braces among them become -LRB-,
-RRB-, -LCB- and -RCB-, as the Penn Treebank writes them, since in a tree they would be brackets.
"""

from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import UserError
from pipeline.evaluation.translation import Translator
from pipeline.parsing.linearisation import WORD_SYMBOL, Rebuilt, one_word, rebuild, writes_trees
from pipeline.parsing.trees import bracketed
from pipeline.settings import PARSING, DecodingSettings
from pipeline.store.artifacts import CHOICE_FILE, ChosenParser

_ESCAPED = str.maketrans({"(": "-LRB-", ")": "-RRB-", "{": "-LCB-", "}": "-RCB-"})


def settings_of(checkpoint_folder: Path) -> DecodingSettings:
    """Returns the search that was chosen for a parser on the dev set; the paper's where none was chosen."""
    if not (checkpoint_folder / CHOICE_FILE).exists():
        return PARSING
    return DecodingSettings(**ChosenParser(checkpoint_folder).search.model_dump())


class Parser(Translator):
    """A model that translates words into symbols of trees. Raises UserError where the checkpoint is no parser's."""

    def _load(self, folder: Path) -> None:
        super()._load(folder)
        if not writes_trees(self._vocabulary):
            raise UserError(
                f"{folder} is not a parser: its vocabulary has no piece {WORD_SYMBOL}; "
                "name a folder parser_choice-* made by workflows.reproduce_table4"
            )

    def parse(self, lines: Sequence[str]) -> list[Rebuilt | None]:
        """Returns a tree over the words of each line, with its repairs; None for a blank line."""
        sentences = [line.translate(_ESCAPED).split() for line in lines]
        outputs = self.translations([" ".join(map(one_word, words)) for words in sentences])
        return [
            rebuild(output.text.split(), words) if words else None
            for words, output in zip(sentences, outputs, strict=True)
        ]

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Returns the bracketed tree of each line; a blank line gives an empty one."""
        return [bracketed(parsed.tree) if parsed else "" for parsed in self.parse(lines)]
