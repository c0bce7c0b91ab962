"""Input and output of `aiayn translate`: reads sentences from a file or the keyboard, writes translations to stdout.

Everything else goes to standard error.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from pipeline.text.lines import lines_of
from workflows.console.command import INTERRUPTED

if TYPE_CHECKING:
    from pipeline.evaluation.translation import Translation, Translator  # imports torch, which --help does not need

CHUNK_LINES = 2000
"""Lines of standard input translated together: enough to batch by length, but few enough to stream."""
N_BEST_LINE = "`sentence number from 0 ||| translation ||| LogP= log P ||| log P / penalty`"
"""A line of Moses' n-best list format, which rescoring tools read."""
PROMPT = "> "


class LineWriter(Protocol):
    """Writes what a model makes of each line."""

    @property
    def translator(self) -> "Translator":
        """The model."""

    def write(self, lines: Sequence[str]) -> None:
        """Writes the outputs for some lines to standard output."""


@dataclass
class TranslationWriter:
    """Translates sentences and immediately writes the outputs to standard output in UTF-8."""

    translator: "Translator"
    n_best: int = 1
    """Outputs per sentence; above 1 they are written as N_BEST_LINE."""
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

    def _line(self, output: "Translation") -> str:
        if self.n_best > 1:
            log_p, score = f"{output.log_probability:.4f}", f"{output.score:.4f}"
            return f"{self.n_sentences} ||| {output.text} ||| LogP= {log_p} ||| {score}"
        return f"{output.score:.4f}\t{output.text}" if self.scores else output.text


def translate_stream(writer: LineWriter) -> None:
    """Translates standard input, CHUNK_LINES at a time. Raises UserError if it is not text."""
    lines = lines_of(sys.stdin.buffer, "standard input")
    while chunk := list(islice(lines, CHUNK_LINES)):
        writer.write(chunk)


def translate_typed(writer: LineWriter, name: str) -> None:
    """Translates each sentence as it is typed at a terminal, until ctrl-D; `name` is the model's name."""
    config, settings = writer.translator.config, writer.translator.settings
    _print_note(
        f"{name}: n_layers {config.n_layers}, d_model {config.d_model}, {config.vocabulary_size} pieces; "
        f"beam {settings.beam_size}, length penalty {settings.length_penalty:g}"
    )
    _print_note("type a sentence and press Enter; ctrl-D quits")
    try:
        while True:
            try:
                writer.write([_read_line()])
            except UnicodeError:
                _print_note("that line is not UTF-8; set the terminal to UTF-8")
    except (EOFError, KeyboardInterrupt) as end:
        _print_note("")  # so that the shell's prompt starts on a new line
        if isinstance(end, KeyboardInterrupt):
            raise SystemExit(INTERRUPTED) from None


def _read_line() -> str:
    """Reads a line from the keyboard, with line editing and history if standard output is a terminal too.

    Raises EOFError after ctrl-D and UnicodeError if the line is not UTF-8.
    """
    if sys.stdout.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401  # makes input() editable
        line = input(PROMPT)
    else:
        print(PROMPT, end="", file=sys.stderr, flush=True)
        line = input()
    line.encode()  # raises UnicodeError for invalid bytes that input() lets through
    return line


def _print_note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
