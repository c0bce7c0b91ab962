"""Figures 3 to 5 of the paper from a trained model: what its heads attend to.

python -m workflows.attention_figures                                  # the newest model in runs/
python -m workflows.attention_figures --run "en-de base"               # a model by its name in the tables
python -m workflows.attention_figures --model DIR --sentence "..."     # a model and a sentence of yours
python -m workflows.attention_figures --layer 2 --heads 1,3 --word it  # heads and word of yours
"""

from pathlib import Path
from typing import Annotated

import typer

from workflows.console.command import console, help_text, run_app
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

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(help=help_text(__doc__))
def main(
    model: Annotated[
        Path | None, typer.Option("--model", help="Folder of a model.  [default: the newest in the store]")
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
    """Draws what is not in the store, adds it to the model's runs in MLflow, and says where it is."""
    from workflows.figures.steps import make, request
    from workflows.tracking.attachment import attach

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
    figures, fingerprint = make(wanted)
    for one in figures.load().figures:
        console.print(one.caption, highlight=False, markup=False)
    console.print(f"\npage: {figures.folder / 'attention.html'}", highlight=False, soft_wrap=True)
    console.print(f"figures: {figures.folder}", highlight=False, soft_wrap=True)
    if wanted.model.training:
        n_runs = attach(wanted.store.root, wanted.model.training, figures.folder, fingerprint, "attention")
        if n_runs:
            console.print(f"MLflow: under attention/ in {n_runs} of the model's runs", highlight=False)


if __name__ == "__main__":
    run_app(app, "python -m workflows.attention_figures")
