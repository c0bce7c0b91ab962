"""What `aiayn translate` reads and writes: sentences of a file or of the keyboard, translations on standard output.

What is said besides goes to standard error.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from pipeline.text.lines import lines_of
from workflows.console.command import INTERRUPTED

if TYPE_CHECKING:
    from pipeline.evaluation.translation import Translation, Translator  # imports torch, which --help can do without

CHUNK_LINES = 2000
"""Lines of standard input translated together: enough to batch by length, few enough to stream."""
N_BEST_LINE = "`sentence number from 0 ||| translation ||| LogP= log P ||| log P / penalty`"
"""The n-best list of Moses, which rescoring tools read."""
PROMPT = "> "


@dataclass
class TranslationWriter:
    """Translates sentences and writes the outputs to standard output at once, UTF-8."""

    translator: "Translator"
    n_best: int = 1
    """Outputs a sentence; above 1 they are written as N_BEST_LINE."""
    scores: bool = False
    """Whether a single output begins with its score and a tab."""
    n_sentences: int = 0
    """Written so far."""

    def write(self, lines: Sequence[str]) -> None:
        """One line each, or an n-best list."""
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


def translate_stream(writer: TranslationWriter) -> None:
    """Standard input to its end, CHUNK_LINES at a time. Raises UserError where it is not text."""
    lines = lines_of(sys.stdin.buffer, "standard input")
    while chunk := list(islice(lines, CHUNK_LINES)):
        writer.write(chunk)


def translate_typed(writer: TranslationWriter, name: str) -> None:
    """Sentences typed at a terminal, each answered at once, until ctrl-D; `name` is what the model is called."""
    config, settings = writer.translator.config, writer.translator.settings
    _say(
        f"{name}: n_layers {config.n_layers}, d_model {config.d_model}, {config.vocabulary_size} pieces; "
        f"beam {settings.beam_size}, length penalty {settings.length_penalty:g}"
    )
    _say("type a sentence and Enter; ctrl-D ends")
    try:
        while True:
            try:
                writer.write([_read_line()])
            except UnicodeError:
                _say("that line is not UTF-8; set the terminal to UTF-8")
    except (EOFError, KeyboardInterrupt) as end:
        _say("")  # the shell's prompt begins a line of its own
        if isinstance(end, KeyboardInterrupt):
            raise SystemExit(INTERRUPTED) from None


def _read_line() -> str:
    """A line from the keyboard, with line editing and history where standard output is the terminal too.

    Raises EOFError after ctrl-D and UnicodeError where the line is not UTF-8.
    """
    if sys.stdout.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401  # input() then edits
        line = input(PROMPT)
    else:
        print(PROMPT, end="", file=sys.stderr, flush=True)
        line = input()
    line.encode()  # raises what input() may have left to be found
    return line


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
