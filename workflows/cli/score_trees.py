"""`aiayn score-trees`: bracketing scores of parsed trees, as EVALB prints them (Table 4)."""

import json
from pathlib import Path
from typing import Annotated

import typer


def score_trees(
    gold: Annotated[Path, typer.Option(help="Trees of a treebank, one per line.")],
    test: Annotated[Path, typer.Option(help="Trees of the same sentences, one per line.")],
    params: Annotated[
        Path | None, typer.Option(help="EVALB's parameter file.  [default: the content of COLLINS.prm]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    sentences: Annotated[bool, typer.Option("--sentences", help="Print the figures of each sentence too.")] = False,
) -> None:
    """Print labelled bracketing recall, precision and F1 as the program EVALB computes them (paper §6.3)."""
    from pipeline.parsing.evalb import score_trees as score
    from pipeline.parsing.evalb_parameters import COLLINS, read_parameters
    from pipeline.parsing.evalb_text import json_values, sentence_table, summary

    scores = score(gold, test, read_parameters(params) if params else COLLINS)
    for message in scores.messages:
        typer.echo(message, err=True)
    if as_json:
        typer.echo(json.dumps(json_values(scores, with_sentences=sentences)))
        return
    for line in (*(sentence_table(scores) if sentences else ()), *summary(scores)):
        typer.echo(line)
