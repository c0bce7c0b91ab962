"""Parses sentences in one process (§6.3): translates words into symbols, and rebuilds trees from these.

    parser = Parser(folder, PARSING, "cpu")
    parser.parse(["The man hears the dog .", ""])    # [Rebuilt(tree, repairs), None]

A sentence is its words with spaces between them, as in a treebank. Parentheses and braces among them become -LRB-,
-RRB-, -LCB- and -RCB-, as the Penn Treebank writes them, since in a tree they would be brackets.
"""

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Self

from pipeline.errors import UserError
from pipeline.evaluation.translation import Translator
from pipeline.parsing.constraint import writes_trees
from pipeline.parsing.linearisation import WORD_SYMBOL, Rebuilt, rebuild
from pipeline.settings import PARSING, DecodingSettings
from pipeline.store.artifacts import CHOICE_FILE, ChosenParser
from pipeline.text.vocabulary import load

_ESCAPED = str.maketrans({"(": "-LRB-", ")": "-RRB-", "{": "-LCB-", "}": "-RCB-"})


def settings_of(checkpoint_folder: Path) -> DecodingSettings:
    """Returns the search that was chosen for a parser on the dev set; the paper's where none was chosen."""
    if not (checkpoint_folder / CHOICE_FILE).exists():
        return PARSING
    return DecodingSettings(**ChosenParser(checkpoint_folder).choice.settings.model_dump())


class Parser:
    """A parser with its vocabulary. Raises UserError where the checkpoint cannot be loaded or is not a parser."""

    def __init__(self, checkpoint_folder: Path, settings: DecodingSettings = PARSING, device: str = "cpu") -> None:
        if not writes_trees(load(checkpoint_folder / "joint.model")):
            raise UserError(
                f"{checkpoint_folder} is not a parser: its vocabulary has no piece {WORD_SYMBOL}; "
                "name a folder parser_choice-* made by workflows.reproduce_table4"
            )
        self._translator = Translator(checkpoint_folder, settings, device)

    @property
    def translator(self) -> Translator:
        """The model, which translates words into symbols."""
        return self._translator

    def with_settings(self, settings: DecodingSettings) -> Self:
        """Returns a parser with the same model that searches by other settings."""
        other = copy(self)
        other._translator = self._translator.with_settings(settings)
        return other

    def parse(self, lines: Sequence[str]) -> list[Rebuilt | None]:
        """Returns a tree over the words of each line, with its repairs; None for a blank line."""
        # The vocabulary takes only the plain space for one; a sentence's words must be the same for both.
        escaped = [" ".join(line.translate(_ESCAPED).split()) for line in lines]
        symbols = self._translator.translate(escaped)
        return [
            rebuild(output.split(), words) if (words := line.split()) else None
            for line, output in zip(escaped, symbols, strict=True)
        ]
