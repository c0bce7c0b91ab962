"""`aiayn claims`: judges the paper's claims in words by the runs of a table's seeds.csv."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from pipeline.errors import UserError
from workflows.cli.console import console


def claims(
    seeds: Annotated[list[Path], typer.Argument(help="seeds.csv of Table 2 or 3; several files are read as one.")],
    margin: Annotated[
        float | None,
        typer.Option(
            help="Difference in nats up to which models are alike.  [default: the text's, in docs/protocol.md]"
        ),
    ] = None,
) -> None:
    """Judge the paper's claims in words by the seeds of Tables 2 and 3 (docs/protocol.md)."""
    from workflows.claims import page
    from workflows.claims.claims import judge
    from workflows.claims.seeds import read

    if margin is not None and not 0 < margin < 100:
        raise UserError(f"--margin {margin}: must be above 0 and below 100 nats")
    runs = read(seeds)
    judged = judge(runs, margin)
    console.print(Text(page.title(runs), style="bold"))
    console.print(page.terminal(judged))
    console.print(Text(page.EXPLANATION, style="dim"))
    console.print(page.said(judged), highlight=False)
