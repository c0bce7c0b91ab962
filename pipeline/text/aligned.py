"""Parallel text copied into a corpus: aligned shards of bounded size, checked line by line, streamed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from shutil import rmtree

from pipeline.errors import UserError
from pipeline.store.artifact import Context, file_sha256
from pipeline.store.artifacts import Corpus
from pipeline.text.lines import read_pairs, write_pairs

SHARD_PAIRS = 100_000
"""Pairs a shard: what later stages hold in memory at once."""


def write_corpus(
    context: Context, languages: tuple[str, str], files: Mapping[str, Sequence[tuple[Path, Path]]]
) -> Corpus:
    """Copies the (source, target) files of each split, one after the other, into a corpus.

    One call of `context.map` a pair of files. A training shard is from one of them, and the end of the source file's
    path, as much of it as tells it from the others, is its collection. Blank lines are kept. Raises UserError where two
    sides differ in length, a line is not UTF-8 or a split is empty.
    """
    corpus, parts_folder = Corpus(context.folder), context.folder / "parts"
    splits: dict[str, list[int]] = {split: [] for split in files}
    collections: list[str] = []
    pairs_of_files = [(split, sides) for split in files for sides in files[split]]
    calls = [
        (Corpus(parts_folder / f"{i:05d}"), split, languages, *sides) for i, (split, sides) in enumerate(pairs_of_files)
    ]
    names = _names([source for source, _ in files["train"]])
    for done, (call, sizes) in enumerate(zip(calls, context.map(read_files, calls), strict=True), start=1):
        part, split, _, source, _ = call
        move_shards(part, corpus, split, languages, sizes, splits[split])
        if split == "train":
            collections += [names[source]] * len(sizes)
        context.progress(done, len(calls), "files")
    rmtree(parts_folder)
    for split, sizes in splits.items():
        if not sizes:
            source, target = files[split][0]
            raise UserError(f"{source} and {target} are empty: {split!r} needs at least one pair")
    read = {split: sum(sizes) for split, sizes in splits.items()}
    corpus.describe(languages, splits, {"read": read}, collections)
    return corpus


def read_files(part: Corpus, split: str, languages: tuple[str, str], source: Path, target: Path) -> list[int]:
    """Copies two aligned files into shards of a split of `part`; returns the pairs of each."""
    rmtree(part.folder, ignore_errors=True)  # of an attempt that was killed
    return write_shards(part, split, languages, read_pairs(source, target), SHARD_PAIRS)


def write_shards(
    corpus: Corpus, split: str, languages: tuple[str, str], pairs: Iterable[tuple[str, str]], shard_pairs: int
) -> list[int]:
    """Writes a split in shards of at most `shard_pairs`; returns the pairs of each, none where there are no pairs."""
    sizes: list[int] = []
    (corpus.folder / split).mkdir(parents=True, exist_ok=True)
    for block in _blocks(iter(pairs), shard_pairs):
        source, target = (corpus.shard_path(split, len(sizes), language) for language in languages)
        sizes.append(write_pairs(source, target, block))
    return sizes


def move_shards(
    of: Corpus, to: Corpus, split: str, languages: tuple[str, str], sizes: Sequence[int], into: list[int]
) -> None:
    """Moves a split's shards, of `sizes` pairs, behind those of another corpus, of the sizes `into`, which grow."""
    (to.folder / split).mkdir(parents=True, exist_ok=True)
    for number in range(len(sizes)):
        for language in languages:
            of.shard_path(split, number, language).rename(to.shard_path(split, len(into) + number, language))
    into += sizes


def content_sha256(path: Path) -> str:
    """sha256 of a file, computed once for as long as its size and time of change stay. Raises UserError."""
    try:
        status = path.stat()
        return _sha256_at(path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check the path") from None


@lru_cache(maxsize=4096)
def _sha256_at(path: Path, size_bytes: int, changed_ns: int) -> str:
    """The arguments after the first only tell one state of the file from another."""
    return file_sha256(path)


def _names(paths: Iterable[Path]) -> dict[Path, str]:
    """The end of each path, as much of it as tells it from the others."""
    parts = {path: path.absolute().parts for path in paths}
    names = {}
    for path, own in parts.items():
        alike, length = set(parts.values()), 0
        while len(alike) > 1 or not length:
            length += 1
            alike = {other for other in alike if other[-length:] == own[-length:]}
        names[path] = "/".join(own[-length:])
    return names


def _blocks(pairs: Iterator[tuple[str, str]], size: int) -> Iterator[Iterator[tuple[str, str]]]:
    """Consecutive runs of at most `size` pairs, none empty; each must be used up before the next is asked for."""
    for first in pairs:
        yield chain([first], islice(pairs, size - 1))
