"""`aiayn figures`, and `python -m workflows.attention_figures`: the paper's attention figures, as files and a page."""

from pathlib import Path
from typing import Annotated

import typer

from workflows.cli.console import console
from workflows.cli.options import AddressOption, StoreOption
from workflows.engine.dag import Imported
from workflows.engine.progress import View

draw = Imported("workflows.figures.steps:draw")


def figures(
    model: Annotated[
        Path | None,
        typer.Argument(help="Folder or name of a model.  [default: the newest of Table 2, else of the store]"),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder to create.  [default: one in the store]")] = None,
    sentence: Annotated[
        list[str] | None,
        typer.Option(help="Sentence to translate. May be repeated.  [default: the paper's, or the model's text]"),
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Layer to draw, from 1.  [default: computed]")] = None,
    heads: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Heads to draw, e.g. 1,3.  [default: computed]")
    ] = None,
    word: Annotated[
        list[str] | None,
        typer.Option(
            help="Word whose attention Figures 3 and 4 show; a second word is for Figure 4.  "
            "[default: the paper's in its sentences, else computed]"
        ),
    ] = None,
    store: StoreOption = "runs",
    address: AddressOption = None,
) -> None:
    """Draw the attention of a model's heads (the paper's Figures 3 to 5): SVG and an interactive page."""
    drawn = draw(
        store,
        [View(console)],
        folder=model,
        sentences=sentence,
        layer=layer,
        heads=heads,
        words=word,
        out=out,
        address=address,
    )
    console.print(f"model: {drawn.load().model}", highlight=False)
    for figure in drawn.load().figures:
        console.print(figure.caption, highlight=False)
    console.print(f"\npage: {drawn.folder / 'attention.html'}", highlight=False, soft_wrap=True)
    console.print(f"figures: {out or drawn.folder}", highlight=False, soft_wrap=True)
