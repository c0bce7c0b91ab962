"""Reads a user's parallel text, described by a small TOML file.

    source = "en"
    target = "de"
    train = {source = "train.en.gz", target = "train.de.gz"}     # or "pairs.tsv.gz", or a list
    dev = {source = "dev.en", target = "dev.de"}
    [test.newstest2013]                                          # one or more, main test set first
    source = "newstest2013.en"
    target = "newstest2013.de"

Files are UTF-8, plain or compressed, aligned line by line, or one with a tab between the sides. Paths are relative to
the TOML file.
"""

import os
from collections.abc import Iterator
from os.path import commonpath, relpath
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from pipeline.artifacts import Corpus, EvaluationSet
from pipeline.context import Context
from pipeline.corpora.archives import Origin
from pipeline.errors import UserError, mistakes
from pipeline.settings import CleaningSettings, Settings, read_toml
from pipeline.store.hashes import cached
from pipeline.text.aligned import Part, cached_sha256, copy_set, no_pair, parts_of
from pipeline.text.amount import Amount
from pipeline.text.cleaning import write_corpus
from pipeline.text.languages import pair_in, tag_of
from pipeline.text.lines import count_lines, plain_bytes, read_pairs
from pipeline.text.overlap import check_apart


def _not_ours(name: str) -> str:
    # Files such as `evaluation_set.json` and `decoding.json` lie beside `<test set>.<language>`.
    if name in ("train", "dev", "json") or name.endswith(".json"):
        raise ValueError(f"the name {name} is reserved; choose another")
    return name


def _absolute(path: Path, info: ValidationInfo) -> Path:
    # "~name" is a file name unless it is a user's home.
    return Path((info.context or {}).get("folder", ""), os.path.expanduser(path)).absolute()


Name = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$"), AfterValidator(_not_ours)
]
"""Part of a file name; `workflows.runs.file_name` drops trailing signs."""
File = Annotated[Path, AfterValidator(_absolute)]
"""A path relative to the TOML file, made absolute on reading, since stages may run in another working directory."""


class FilePair(Settings):
    """Two aligned files, or twice the path of a file with both columns (`read_pairs`), which users write once."""

    source: File
    target: File

    @model_validator(mode="before")
    @classmethod
    def _one_file(cls, value: Any) -> Any:
        return value if isinstance(value, dict | FilePair) else {"source": value, "target": value}

    @property
    def paths(self) -> list[Path]:
        """The file or the two."""
        return [self.source, self.target][: 1 + (self.source.resolve() != self.target.resolve())]


class FilesText(Settings):
    """The files of a split: training text or an evaluation set."""

    name: str
    languages: tuple[str, str]
    files: tuple[FilePair, ...]

    def identity(self) -> dict[str, Any]:
        """Depends on the files' content, not their paths. Raises UserError if one cannot be read."""
        hashes = [[cached_sha256(path) for path in sides.paths] for sides in self.files]
        return {"name": self.name, "languages": list(self.languages), "files": hashes}

    def amount(self) -> Amount:
        """Returns pairs, counted once, and text size, roughly if compressed. Raises UserError if one is unreadable."""
        pairs = sum(cached(sides.source, "lines-2", count_lines) for sides in self.files)
        return Amount(pairs, sum(plain_bytes(path) for sides in self.files for path in sides.paths))


class FilesSettings(Settings):
    """The files of each split."""

    source: Name
    target: Name
    train: Annotated[tuple[FilePair, ...], BeforeValidator(lambda v: v if isinstance(v, list | tuple) else [v])] = (
        Field(min_length=1)
    )
    dev: FilePair
    test: dict[Name, FilePair] = Field(min_length=1)

    @model_validator(mode="after")
    def _two_languages(self) -> "FilesSettings":
        if tag_of(self.source) == tag_of(self.target):
            raise ValueError(f"source {self.source} and target {self.target} are one language; name two")
        for side, other in ((self.source, self.target), (self.target, self.source)):
            if tag_of(other).language in pair_in(side):
                raise ValueError(f"{side} is a pair of languages; name one for source and one for target")
        return self

    @classmethod
    def load(cls, path: Path) -> "FilesSettings":
        """Reads a TOML file. Raises UserError if it is malformed, or it or a file it names is missing."""
        content, folder = read_toml(path), path.absolute().parent
        try:
            settings = cls.model_validate(content, context={"folder": folder})
        except ValidationError as error:
            raise UserError(f"{path}: {mistakes(error)}") from None
        for sides in (*settings.train, settings.dev, *settings.test.values()):
            for file in sides.paths:
                if not file.is_file():
                    raise UserError(f"{path} names {file}, which is not a file; paths are relative to {folder}")
            next(read_pairs(sides.source, sides.target, "surrogateescape"), None)  # another format is an error now
        return settings

    def texts(self) -> list[FilesText]:
        """Returns the files of training text, dev set and test sets, main one first.

        Raises UserError if train or dev has a file of another split.
        """
        languages = self.source, self.target
        files = {"train": self.train, "dev": (self.dev,), **{name: (sides,) for name, sides in self.test.items()}}
        check_apart({name: [path for pair in pairs for path in pair.paths] for name, pairs in files.items()})
        return [FilesText(name=name, languages=languages, files=pairs) for name, pairs in files.items()]

    def amount(self) -> Amount:
        """Returns the size of the training text (`FilesText.amount`)."""
        return FilesText(name="train", languages=(self.source, self.target), files=self.train).amount()


def read(context: Context, settings: FilesText, cleaning: CleaningSettings) -> Corpus:
    """Reads training text. A collection is named after its source file, from the folder common to all.

    Raises UserError if a file is missing or no text, sides differ in length, all are empty, or the disk is too small.
    """
    amount = settings.amount()
    Origin((), None, context.folder).check([], context.folder, amount)
    folder = commonpath([sides.source.absolute().parent for sides in settings.files])

    def parts() -> Iterator[Part]:
        for sides in settings.files:
            yield from parts_of(relpath(sides.source, folder), sides.source, sides.target, cleaning.shard_pairs)
        if not amount.train_pairs:
            raise no_pair(sides.source, sides.target)

    return write_corpus(context, settings.languages, parts(), cleaning, expected=amount.train_pairs)


def read_set(context: Context, settings: FilesText) -> EvaluationSet:
    """Reads an evaluation set. Raises UserError like `read`, and if a line is not UTF-8."""
    (sides,) = settings.files
    return copy_set(context, settings.name, settings.languages, sides.source, sides.target)
