"""`aiayn figures`: the paper's attention figures of a model, as files and a page."""

from pathlib import Path
from typing import Annotated

import typer

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
