"""Stages for the tests of the DAG: they count the words of text files, really, on disk."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.artifacts import Artifact, Context
from pipeline.errors import UserError
from pipeline.settings import Settings, layout


class Words(Artifact):
    """`words.txt`."""

    @property
    def text(self) -> str:
        return (self.folder / "words.txt").read_text()


class WriteSettings(Settings):
    text: str
    workers: int = layout(1)


@dataclass(frozen=True)
class Pair:
    left: Words
    right: Words | None = None


def write(context: Context, settings: WriteSettings) -> Words:
    if settings.text == "bad":
        raise UserError("the text is bad; write another")
    (context.folder / "words.txt").write_text(settings.text)
    context.progress(1, 1, "texts")
    return Words(context.folder)


def length(text: str) -> int:
    return len(text)


def join(context: Context, pairs: list[Pair], log: Path) -> Words:
    with log.open("a") as file:
        file.write("joined\n")
    texts = [words.text for pair in pairs for words in (pair.left, pair.right) if words]
    lengths = list(context.map(length, [(text,) for text in texts]))
    (context.folder / "words.txt").write_text(f"{' '.join(texts)} {lengths}")
    return Words(context.folder)
