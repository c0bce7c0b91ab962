"""`aiayn parse`: sentences -> bracketed trees, one a line, or drawings of them at a terminal (Table 4)."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.settings import DecodingSettings
from workflows.cli.translate import translate_stream, translate_typed
from workflows.console.options import BatchTokensOption, DtypeOption, ThreadsOption
from workflows.profiles import checked
from workflows.runs.names import named_folder

if TYPE_CHECKING:
    from nltk.tree import Tree

    from pipeline.evaluation.parser import Parser  # imports torch, which --help does not need
    from pipeline.evaluation.translation import Translator

DECODING = DecodingSettings()
OWN_DEFAULT = "[default: the model's own, or the paper's]"


def parse(
    model: Annotated[Path, typer.Argument(help="Folder or name of a parser, e.g. table4/embedded/supervised.")],
    beam_size: Annotated[
        int | None, typer.Option(min=1, help=f"Hypotheses kept at each step; 1 is greedy.  {OWN_DEFAULT}")
    ] = None,
    length_penalty: Annotated[float | None, typer.Option(min=0, help=f"α of ((5 + |y|) / 6)^α.  {OWN_DEFAULT}")] = None,
    max_extra_tokens: Annotated[
        int | None, typer.Option(min=1, help=f"Maximum output tokens beyond the input's.  {OWN_DEFAULT}")
    ] = None,
    constrained: Annotated[
        bool, typer.Option("--constrained", help="Search among well-formed trees alone, so that nothing is repaired.")
    ] = False,
    batch_tokens: BatchTokensOption = DECODING.batch_tokens,
    dtype: DtypeOption = DECODING.dtype,
    threads: ThreadsOption = 0,
) -> None:
    """Parse standard input, one sentence per line, words separated by spaces ("The dog sleeps ."); write one bracketed
    tree per line, or, typed at a terminal, draw it (paper §6.3)."""
    import torch

    from pipeline.evaluation.parser import Parser, settings_of

    folder = named_folder("average", model, "model.safetensors")
    given = {"beam_size": beam_size, "length_penalty": length_penalty, "max_extra_tokens": max_extra_tokens}
    settings = checked(
        DecodingSettings,
        **{
            **settings_of(folder).model_dump(),
            **{name: value for name, value in given.items() if value is not None},
            "well_formed": constrained,
            "batch_tokens": batch_tokens,
            "dtype": dtype,
            "threads": threads or os.cpu_count() or 1,
        },
    )
    torch.set_num_threads(settings.threads)
    parser = Parser(folder, settings, "cuda" if torch.cuda.is_available() else "cpu")
    if sys.stdin.isatty():
        translate_typed(TreeWriter(parser, draws=sys.stdout.isatty()), str(model))
    else:
        translate_stream(TreeWriter(parser))


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
