"""`aiayn figures`: the paper's attention figures of a model, as files or as a page served to this machine."""

from pathlib import Path
from typing import Annotated

import typer

from pipeline.errors import UserError
from workflows.console.command import console
from workflows.console.options import (
    AddressOption,
    DatasetOption,
    HeadsOption,
    LayerOption,
    RunOption,
    SentenceOption,
    StoreOption,
    WordOption,
)


def figures(
    model: Annotated[Path | None, typer.Argument(help="Folder of a model.  [default: the newest in the store]")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder to create.  [default: one in the store]")] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the page to this machine alone; sentences can be typed into it.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="With --serve; 0: any free one.  [default: 8765]")
    ] = None,
    run: RunOption = None,
    sentence: SentenceOption = None,
    layer: LayerOption = None,
    heads: HeadsOption = None,
    word: WordOption = None,
    dataset: DatasetOption = None,
    store: StoreOption = "runs",
    address: AddressOption = None,
) -> None:
    """Draw what a model's heads attend to (Figures 3 to 5 of the paper): SVG, PNG and a page to explore."""
    if port is not None and not serve:
        raise UserError("--port is for --serve; add it")
    from workflows.figures.server import DEFAULT_PORT
    from workflows.figures.serving import serve as serve_page
    from workflows.figures.steps import make, request

    wanted = request(
        store,
        folder=model,
        name=run,
        sentences=sentence,
        layer=layer,
        heads=heads,
        word=word,
        dataset=dataset,
        address=address,
    )
    made = make(wanted, out)
    console.print(f"figures: {out or made.folder}", highlight=False, soft_wrap=True)
    if serve:
        serve_page(wanted, made, DEFAULT_PORT if port is None else port)
