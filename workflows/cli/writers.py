"""What `aiayn translate` and `aiayn parse` do with a model: standard input in, translations or trees out, in UTF-8."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch
from nltk.tree import Tree
from nltk.tree.prettyprinter import TreePrettyPrinter

from pipeline.evaluation.parser import Parser, settings_of
from pipeline.evaluation.translation import Translation, Translator
from pipeline.parsing.trees import bracketed
from pipeline.settings import DecodingSettings
from pipeline.text.lines import lines_of
from workflows.profiles import checked

CHUNK_LINES = 2000
"""Lines of standard input translated together: enough to batch by length, but few enough to stream."""


class LineWriter(Protocol):
    """Writes what a model makes of each line."""

    def write(self, lines: Sequence[str]) -> None:
        """Writes the outputs for some lines to standard output."""


def translate(folder: Path, settings: DecodingSettings, n_best: int, scores: bool) -> None:
    """Translates standard input with the model in a folder. Raises UserError if it is not text."""
    _stream(TranslationWriter(Translator(folder, settings, _device(settings)), n_best, scores))


def parse(folder: Path, changes: dict[str, Any]) -> None:
    """Parses standard input with the parser in a folder, whose own settings are changed. Raises UserError if it is not
    text; trees are drawn if both ends are a terminal."""
    settings = checked(DecodingSettings, **{**settings_of(folder).model_dump(), **changes})
    draws = sys.stdin.isatty() and sys.stdout.isatty()
    _stream(TreeWriter(Parser(folder, settings, _device(settings)), draws))


@dataclass
class TranslationWriter:
    """Translates sentences and immediately writes the outputs."""

    translator: Translator
    n_best: int = 1
    """Outputs per sentence; above 1 they are written as Moses' n-best lists."""
    scores: bool = False
    """Says whether to begin a single output with its score and a tab."""
    n_sentences: int = 0
    """Number of sentences written so far."""

    def write(self, lines: Sequence[str]) -> None:
        """Writes one line, or an n-best list, for each sentence in `lines`."""
        for outputs in self.translator.n_best(lines, self.n_best):
            for output in outputs:
                sys.stdout.buffer.write(self._line(output).encode() + b"\n")
            self.n_sentences += 1
        sys.stdout.buffer.flush()

    def _line(self, output: Translation) -> str:
        if self.n_best > 1:
            log_p, score = f"{output.log_probability:.4f}", f"{output.score:.4f}"
            return f"{self.n_sentences} ||| {output.text} ||| LogP= {log_p} ||| {score}"
        return f"{output.score:.4f}\t{output.text}" if self.scores else output.text


@dataclass
class TreeWriter:
    """Parses sentences and immediately writes their trees."""

    parser: Parser
    draws: bool = False
    """Says whether trees are drawn, not written in brackets."""

    def write(self, lines: Sequence[str]) -> None:
        """Writes the tree of each line; a blank line gives a blank line."""
        for rebuilt in self.parser.parse(lines):
            text = "" if rebuilt is None else drawn(rebuilt.tree) if self.draws else bracketed(rebuilt.tree)
            sys.stdout.buffer.write(text.encode() + b"\n")
        sys.stdout.buffer.flush()


def drawn(tree: Tree) -> str:
    """Draws a tree with lines, the words at the bottom."""
    return str(TreePrettyPrinter(tree).text(unicodelines=True)).rstrip()


def _stream(writer: LineWriter) -> None:
    """Writes what becomes of standard input: CHUNK_LINES at a time, or each line as it is typed."""
    typed = sys.stdin.isatty()
    if typed:
        print("type a sentence and press Enter; ctrl-D quits", file=sys.stderr, flush=True)
    lines = lines_of(sys.stdin.buffer, "standard input")
    while chunk := list(islice(lines, 1 if typed else CHUNK_LINES)):
        writer.write(chunk)


def _device(settings: DecodingSettings) -> str:
    torch.set_num_threads(settings.threads)
    return "cuda" if torch.cuda.is_available() else "cpu"
