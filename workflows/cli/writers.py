"""`aiayn translate` and `aiayn parse`: standard input to translations or trees, in UTF-8."""

import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch

from pipeline.evaluation.parser import Parser, settings_of
from pipeline.evaluation.translation import Translator
from pipeline.parsing.trees import bracketed, drawn
from pipeline.settings import DecodingSettings
from pipeline.text.formats import noticing
from pipeline.text.lines import is_utf8, lines_of
from workflows.cli.console import INTERRUPTED
from workflows.profiles.changes import checked

CHUNK_LINES = 2000
"""Lines of standard input translated together: enough to batch by length, but few enough to stream."""


def translate(folder: Path, settings: DecodingSettings, n_best: int, scores: bool) -> None:
    """Translates standard input with the model in a folder: one line per sentence, or Moses' n-best list.

    `scores` prefixes single translations with their score and a tab. Raises UserError if the input is not text.
    """
    translator, numbers = Translator(folder, settings, _device(settings)), count()

    def lines_of_output(sentences: Sequence[str]) -> Iterator[str]:
        for translations in translator.n_best(sentences, n_best):
            number = next(numbers)
            for translation in translations:
                text, score = translation.text, f"{translation.score:.4f}"
                if n_best > 1:
                    yield f"{number} ||| {text} ||| LogP= {translation.log_probability:.4f} ||| {score}"
                else:
                    yield f"{score}\t{text}" if scores else text

    _stream(lines_of_output)


def parse(folder: Path, changes: dict[str, Any]) -> None:
    """Parses standard input with the parser in a folder, one tree per sentence; `changes` override its settings.

    Blank lines stay blank. Trees are drawn if input and output are terminals, else bracketed. Raises UserError if the
    input is not text.
    """
    settings = checked(DecodingSettings, **{**settings_of(folder).model_dump(), **changes})
    parser = Parser(folder, settings, _device(settings))
    written = drawn if sys.stdin.isatty() and sys.stdout.isatty() else bracketed
    _stream(lambda lines: ("" if parsed is None else written(parsed.tree) for parsed in parser.parse(lines)))


def _stream(outputs: Callable[[Sequence[str]], Iterable[str]]) -> None:
    """Writes the outputs for standard input: CHUNK_LINES at a time, or line by line as typed."""
    typed, name = sys.stdin.isatty(), "standard input"
    buffer: Any = sys.stdin.buffer
    if typed:
        print("type a sentence and press Enter; ctrl-D quits", file=sys.stderr, flush=True)
        signal.signal(signal.SIGINT, lambda *_: sys.exit(INTERRUPTED))  # there is nothing to continue
    lines = noticing(lines_of(buffer, name, "surrogateescape" if typed else "strict"), name, tokenized=False)
    while chunk := list(islice(lines, 1 if typed else CHUNK_LINES)):
        if not all(map(is_utf8, chunk)):  # typed
            print("this line is not UTF-8: type it again, in a terminal set to UTF-8", file=sys.stderr, flush=True)
            continue
        for text in outputs(chunk):
            sys.stdout.buffer.write(text.encode() + b"\n")
        sys.stdout.buffer.flush()


def _device(settings: DecodingSettings) -> str:
    torch.set_num_threads(settings.threads)
    return "cuda" if torch.cuda.is_available() else "cpu"
