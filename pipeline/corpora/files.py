"""Reads a user's parallel text, described by a small TOML file.

    source = "en"
    target = "de"
    train = {source = "train.en.gz", target = "train.de.gz"}     # or a list of such tables
    dev = {source = "dev.en", target = "dev.de"}
    [test.newstest2013]                                          # one or more, main test set first
    source = "newstest2013.en"
    target = "newstest2013.de"

Files are UTF-8, plain or gzip, aligned line by line; paths are relative to the TOML file.
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

from pipeline.errors import UserError
from pipeline.settings import CleaningSettings, Settings, read_toml
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus, EvaluationSet
from pipeline.store.hashes import cached
from pipeline.text.aligned import Part, content_sha256, copy_set, no_pair, parts_of
from pipeline.text.amount import Amount
from pipeline.text.cleaning import write_corpus
from pipeline.text.languages import pair_in, tag_of
from pipeline.text.lines import count_lines, readable
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
"""Part of a file name; `workflows.names.file_name` drops trailing signs."""
File = Annotated[Path, AfterValidator(_absolute)]
"""A path relative to the TOML file, made absolute on reading, since stages may run in another working directory."""


class FilePair(Settings):
    """Two aligned files."""

    source: File
    target: File

    @model_validator(mode="after")
    def _two_files(self) -> "FilePair":
        if self.source.resolve() == self.target.resolve():
            raise ValueError(f"source and target are the same file, {self.source}")
        return self

    def sha256(self) -> list[str]:
        """Returns the sha256 of both files. Raises UserError if one cannot be read."""
        return [content_sha256(self.source), content_sha256(self.target)]


class FilesText(Settings):
    """The files of a split: training text or an evaluation set."""

    name: str
    languages: tuple[str, str]
    files: tuple[FilePair, ...]

    def identity(self) -> dict[str, Any]:
        """Depends on the files' content, not their paths. Raises UserError if one cannot be read."""
        return {"name": self.name, "languages": list(self.languages), "files": [sides.sha256() for sides in self.files]}


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
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"] if part != "[key]")
            raise UserError(f"{path}: {place + ': ' if place else ''}{first['msg']}") from None
        for sides in (*settings.train, settings.dev, *settings.test.values()):
            for file in (sides.source, sides.target):
                if not file.is_file():
                    raise UserError(f"{path} names {file}, which is not a file; paths are relative to {folder}")
        return settings

    def count_train_pairs(self) -> int:
        """Returns the number of training pairs, counted once (`cached`). Raises UserError if a file cannot be read."""
        return sum(_count_lines(sides.source) for sides in self.train)

    def texts(self) -> list[FilesText]:
        """Returns the files of training text, dev set and test sets, main one first.

        Raises UserError if train or dev has a file of another split.
        """
        languages = self.source, self.target
        files = {"train": self.train, "dev": (self.dev,), **{name: (sides,) for name, sides in self.test.items()}}
        check_apart(
            {name: [path for pair in pairs for path in (pair.source, pair.target)] for name, pairs in files.items()}
        )
        return [FilesText(name=name, languages=languages, files=pairs) for name, pairs in files.items()]

    def amount(self) -> Amount:
        """Returns pairs, counted once, and text size, estimated for gzip. Raises UserError if a file cannot be read."""
        files = [file for sides in self.train for file in (sides.source, sides.target)]
        pairs = self.count_train_pairs()
        return Amount(pairs, sum(file.stat().st_size * (3 if file.suffix == ".gz" else 1) for file in files))


def _count_lines(path: Path) -> int:
    with readable(path):
        return cached(path, "lines-1", count_lines)


def read(context: Context, settings: FilesText, cleaning: CleaningSettings) -> Corpus:
    """Reads training text. A collection is named after its source file, from the folder common to all.

    Raises UserError if a file is missing or no text, if two sides differ in length, or if all files are empty.
    """
    pairs = sum(_count_lines(sides.source) for sides in settings.files)
    folder = commonpath([sides.source.absolute().parent for sides in settings.files])

    def parts() -> Iterator[Part]:
        for sides in settings.files:
            yield from parts_of(relpath(sides.source, folder), sides.source, sides.target, cleaning.shard_pairs)
        if not pairs:
            raise no_pair(sides.source, sides.target)

    return write_corpus(context, settings.languages, parts(), cleaning, expected=pairs)


def read_set(context: Context, settings: FilesText) -> EvaluationSet:
    """Reads an evaluation set. Raises UserError like `read`, and if a line is not UTF-8."""
    (sides,) = settings.files
    return copy_set(context, settings.name, settings.languages, sides.source, sides.target)
