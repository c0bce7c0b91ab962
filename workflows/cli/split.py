"""`aiayn split`: a user's text into training text, dev set and test set."""

from pathlib import Path
from typing import Annotated

import typer

from pipeline.corpora.files import FilesSettings
from pipeline.corpora.splitting import languages_of, split
from pipeline.store.artifact import Artifact
from workflows.cli.console import say
from workflows.cli.options import OutOption, publish_at
from workflows.profiles.changes import checked

LanguageOption = Annotated[str | None, typer.Option(metavar="CODE", help="Language.  [default: the file's extension]")]


def split_text(
    text: Annotated[list[Path], typer.Argument(help="Two aligned files, or one with a tab between its sides.")],
    out: OutOption,
    dev: Annotated[int, typer.Option(min=1, help="Pairs of the dev set.")] = 1000,
    test: Annotated[int, typer.Option(min=1, help="Pairs of the test set.")] = 1000,
    source: LanguageOption = None,
    target: LanguageOption = None,
) -> None:
    """Split text into training text, dev set and test set. OUT/text.toml describes them for --files."""
    languages = languages_of(text, source, target)
    checked(FilesSettings, source=languages[0], target=languages[1], train="-", dev="-", test={"a": "-"})

    def build(folder: Path) -> Artifact:
        say(f"{out / 'text.toml'}: " + split(folder, (text[0], text[-1]), languages, {"test": test, "dev": dev}))
        return Artifact(folder)

    publish_at(out, "split", build, {"stage": "split"})
