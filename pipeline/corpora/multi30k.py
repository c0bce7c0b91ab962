"""Reads Multi30k task 1 (raw): 29,000 image captions, English with German or French, downloaded or from `--data DIR`.

It is the first stage of profile `multi30k`.
"""

import logging
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pipeline.artifacts import Corpus, EvaluationSet
from pipeline.context import Context
from pipeline.corpora.download import fetch
from pipeline.errors import UserError
from pipeline.settings import AbsolutePath, CleaningSettings, Settings, not_in_fingerprint
from pipeline.store.folders import temporary_folder
from pipeline.text.aligned import cached_sha256, copy_set, parts_of
from pipeline.text.amount import Amount
from pipeline.text.cleaning import write_corpus
from pipeline.text.overlap import check_apart

log = logging.getLogger(__name__)

REPOSITORY = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
SOURCE = "en"
MAIN_TEST_SET = "test_2016_flickr"
TRAIN_PAIRS, PAIR_BYTES = 29_000, 135
"""Pairs in the published training files; UTF-8 bytes per pair, line ends included, German or French."""


@cache
def published() -> dict[str, tuple[int, str]]:
    """Returns each published file's size in bytes and sha256."""
    files = tomllib.loads(Path(__file__).with_name("multi30k.toml").read_text(encoding="utf-8"))
    return {name: (size_bytes, sha256) for name, (size_bytes, sha256) in files.items()}


class Multi30kSettings(Settings):
    """The language pair and the source of its files."""

    target: Literal["de", "fr"] = "de"
    data: AbsolutePath | None = None
    """Folder with `train.en.gz` or `train.en`, `val.*`, `test_2016_flickr.*` and other `test_*`; None to download."""
    base_url: str = not_in_fingerprint(REPOSITORY)
    """Server of the published files. Their hashes are verified, so any mirror will do."""

    def texts(self) -> "list[Multi30kText]":
        """Returns train, dev, test_2016_flickr, then other test sets by name. Raises UserError if one is missing, or
        train or dev is also another split."""
        splits = _splits(self)
        if self.data:
            check_apart({name: [self.data / file for file in files] for name, files in splits.items()})
        return [Multi30kText(name=name, files=files, source=self) for name, files in splits.items()]

    def amount(self) -> Amount:
        """Returns the size of the published files, which are deleted after reading."""
        languages = (SOURCE, self.target)
        downloads = {name: size for name, (size, _) in published().items() if name.split(".")[1] in languages}
        return Amount(TRAIN_PAIRS, TRAIN_PAIRS * PAIR_BYTES, {} if self.data else downloads)


class Multi30kText(Settings):
    """The two files of a split: training text or an evaluation set."""

    name: str
    files: tuple[str, str]
    source: Multi30kSettings

    def identity(self) -> dict[str, Any]:
        """Depends on the files' content, not their paths. Raises UserError if one is missing."""
        if data := self.source.data:
            sha256 = [cached_sha256(data / name) for name in self.files]
        else:
            sha256 = [published()[name][1] for name in self.files]
        return {"name": self.name, "target": self.source.target, "files": sha256}


def read(context: Context, settings: Multi30kText, cleaning: CleaningSettings) -> Corpus:
    """Reads training text.

    Raises UserError if a file is missing or damaged, a download is not the published file, or the sides differ in
    length.
    """
    with _files(context, settings) as (source, target):
        parts = parts_of(source.name, source, target, cleaning.shard_pairs)
        return write_corpus(context, (SOURCE, settings.source.target), parts, cleaning, expected=TRAIN_PAIRS)


def read_set(context: Context, settings: Multi30kText) -> EvaluationSet:
    """Reads an evaluation set. Raises UserError like `read`."""
    with _files(context, settings) as files:
        return copy_set(context, settings.name, (SOURCE, settings.source.target), *files)


@contextmanager
def _files(context: Context, settings: Multi30kText) -> Iterator[tuple[Path, Path]]:
    """Yields both files; downloaded ones are deleted at the end."""
    with temporary_folder(context.folder) as downloads:
        folder = settings.source.data or downloads
        for name in settings.files:
            if settings.source.data is None:
                size_bytes, sha256 = published()[name]
                url = settings.source.base_url.rstrip("/") + "/" + name
                advice = "check the network, or pass --data DIR with the Multi30k files"
                fetch([url], folder / name, size_bytes=size_bytes, checksum=f"sha256:{sha256}", advice=advice)
            elif name in published() and cached_sha256(folder / name) != published()[name][1]:
                log.warning("%s is not the published file (its sha256 differs); using it anyway", folder / name)
        source, target = (folder / name for name in settings.files)
        yield source, target


def _splits(settings: Multi30kSettings) -> dict[str, tuple[str, str]]:
    """Returns each split's source and target file names, in order. Raises UserError if one is missing."""
    present = set(published()) if settings.data is None else _names(settings.data)
    candidates = {name.split(".")[0] for name in present if name.startswith("test_")} - {MAIN_TEST_SET}
    splits = {}
    for split, stem in [("train", "train"), ("dev", "val"), *((n, n) for n in [MAIN_TEST_SET, *sorted(candidates)])]:
        plain = [f"{stem}.{language}" for language in (SOURCE, settings.target)]  # preferred: users edit that one
        sides = [next((name for name in (side, f"{side}.gz") if name in present), None) for side in plain]
        if sides[0] and sides[1]:
            splits[split] = (sides[0], sides[1])
        elif split not in candidates:
            missing = f"{stem}.{settings.target if sides[0] else SOURCE}"
            raise UserError(f"{settings.data} has neither {missing}.gz nor {missing}; put the Multi30k files there")
    return splits


def _names(folder: Path) -> set[str]:
    try:
        return {path.name for path in folder.iterdir()}
    except OSError as error:
        raise UserError(f"--data {folder}: {error.strerror}; give the folder with the Multi30k files") from None
