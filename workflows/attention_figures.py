"""Figures 3 to 5 of the paper from a trained model: the attention of its heads.

python -m workflows.attention_figures                                  # the newest of Table 2
python -m workflows.attention_figures table2/embedded/en-de-base       # by name or folder
python -m workflows.attention_figures MODEL --sentence "..."           # your sentence
python -m workflows.attention_figures --layer 2 --heads 1,3 --word it  # your heads and word
python -m workflows.attention_figures --word making --word its         # for Figures 3 and 4
"""

import os
import secrets
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pipeline.errors import UserError
from pipeline.store.store import Store
from workflows.cli.console import console, run_app, say
from workflows.cli.options import AddressOption, StoreOption
from workflows.cli.prepared import runs_with, searched
from workflows.cli.reproduce import app_of
from workflows.engine.progress import View
from workflows.engine.runner import run
from workflows.runs import file_name


def main(
    model: Annotated[
        Path | None,
        typer.Argument(help="Folder or name of a model.  [default: the newest of Table 2, else of the store]"),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="To create.  [default: in STORE/figures]")] = None,
    sentence: Annotated[
        list[str] | None,
        typer.Option(help="Sentence to translate. May be repeated.  [default: the paper's, or the model's text]"),
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Layer to draw, from 1.  [default: computed]")] = None,
    heads: Annotated[str | None, typer.Option(help="Heads to draw, e.g. 1,3.  [default: computed]")] = None,
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
    """Draws the figures, as SVG and as an interactive page, unless they exist."""
    from workflows.figures import trained
    from workflows.figures.drawing import DRAW, FigureSettings, numbers

    if len(word or ()) > 2:
        raise UserError(f"--word {' --word '.join(word or ())}: give at most two words, for Figures 3 and 4")
    in_store = Store.at(store).checked()
    examined = trained.at(model, in_store) if model else trained.newest(in_store)
    texts, shown = tuple(sentence or examined.sentences()), numbers(heads) if heads else ()
    folder = examined.checkpoint.folder
    title = ", ".join([examined.name, *(run.name for run in runs_with(model or folder, folder)[:1])])
    search = searched(model or folder, folder).model_copy(update={"dtype": "float32"})
    chosen = {"layer": layer, "heads": shown, "words": tuple(word or ()), "decoding": search}
    settings = FigureSettings(name=title, sentences=texts, **chosen)
    step = replace(DRAW(f"figures {examined.name}", examined.checkpoint, settings), out=out and out.absolute())
    # The lock keeps `aiayn clean` from deleting the figures, and afterwards the link does.
    with in_store.lock(f"attention_figures-{secrets.token_hex(8)}", step.label) as lock:
        lock.take()
        (drawn,) = run([step], in_store, [View(console)], address)
        if not out:
            out = in_store.root / "figures" / f"{file_name(examined.name)}-{step.fingerprint[:6]}"
            out.parent.mkdir(exist_ok=True)
            with suppress(FileExistsError):
                out.symlink_to(os.path.relpath(drawn.folder, out.parent))
    say(f"model: {drawn.load().model}")
    for figure in drawn.load().figures:
        console.print(figure.caption, highlight=False)
    say(f"\npage: {out / 'attention.html'}")


if __name__ == "__main__":
    run_app(app_of("workflows.attention_figures"), "python -m workflows.attention_figures")
