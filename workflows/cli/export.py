"""Exports a trained model for other programs, with one command per format.

aiayn export ctranslate2 model --out fast     for CTranslate2: C++, no torch, 8-bit weights on request
"""

from pathlib import Path
from typing import Annotated

import typer

from pipeline.store.artifact import Artifact, publish
from workflows.console.command import console, help_text
from workflows.runs.names import named_folder

app = typer.Typer(no_args_is_help=True, help=help_text(__doc__), rich_markup_mode=None)
EXAMPLE = """\
import ctranslate2, sentencepiece
model, pieces = ctranslate2.Translator({folder!r}), sentencepiece.SentencePieceProcessor(model_file={vocabulary!r})
print(pieces.decode(model.translate_batch([pieces.encode("Two dogs run .", out_type=str)])[0].hypotheses[0]))"""


@app.callback()
def _export() -> None:
    """Keeps `ctranslate2` a subcommand; typer would merge a single command into `aiayn export`."""


@app.command()
def ctranslate2(
    model: Annotated[Path, typer.Argument(help="Folder or name of a model, e.g. table2/embedded/en-de-base.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to create.")],
) -> None:
    """Write a folder that ctranslate2.Translator loads, with the vocabulary; print Python code that uses it."""
    from pipeline.export.ctranslate2 import export_ctranslate2

    checkpoint = named_folder("average", model, "model.safetensors")

    def make(folder: Path) -> Artifact:
        export_ctranslate2(checkpoint, folder)
        return Artifact(folder)

    manifest = {"stage": "exporting.export_ctranslate2", "settings": [], "model": str(model)}
    publish(out.absolute(), make, manifest)
    console.print(f"model: {out}; to use it in Python:", highlight=False, soft_wrap=True)
    example = EXAMPLE.format(folder=str(out), vocabulary=str(out / "joint.model"))
    console.print(example, highlight=False, soft_wrap=True, markup=False)
