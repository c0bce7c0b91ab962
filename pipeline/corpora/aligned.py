"""Parallel text copied into a corpus: aligned shards of bounded size, checked line by line, streamed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

from pipeline.artifacts import Context, Corpus, file_sha256
from pipeline.errors import UserError
from pipeline.lines import read_pairs, write_pairs

SHARD_PAIRS = 100_000
"""Pairs a shard: what later stages hold in memory at once."""


def write_corpus(
    context: Context, languages: tuple[str, str], files: Mapping[str, Sequence[tuple[Path, Path]]]
) -> Corpus:
    """Copies the (source, target) files of each split, one after the other, into a corpus.

    Blank lines are kept. Raises UserError where two sides differ in length, a line is not UTF-8 or a split is empty.
    """
    corpus = Corpus(context.folder)
    splits: dict[str, list[int]] = {}
    for split, sides in files.items():
        pairs = chain.from_iterable(read_pairs(source, target) for source, target in sides)
        splits[split] = write_shards(corpus, split, languages, pairs, SHARD_PAIRS)
        if not splits[split]:
            raise UserError(f"{sides[0][0]} and {sides[0][1]} are empty: {split!r} needs at least one pair")
        context.progress(len(splits), len(files), "splits")
    corpus.describe(languages, splits, {"read": {split: sum(sizes) for split, sizes in splits.items()}})
    return corpus


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


def _blocks(pairs: Iterator[tuple[str, str]], size: int) -> Iterator[Iterator[tuple[str, str]]]:
    """Consecutive runs of at most `size` pairs, none empty; each must be used up before the next is asked for."""
    for first in pairs:
        yield chain([first], islice(pairs, size - 1))
