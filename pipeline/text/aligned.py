"""Copies parallel text into a corpus of aligned shards of bounded size, line by line and checked; reads it back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from shutil import rmtree

from pipeline.errors import UserError
from pipeline.store.artifact import Context, file_sha256
from pipeline.store.artifacts import Corpus
from pipeline.text.lines import read_lines, read_pairs, write_pairs

SHARD_PAIRS = 100_000
"""Pairs per shard, the unit that later stages hold in memory at once."""


def write_corpus(
    context: Context, languages: tuple[str, str], files: Mapping[str, Sequence[tuple[Path, Path]]]
) -> Corpus:
    """Copies the (source, target) files of each split, one after the other, into a corpus.

    `context.map` makes one call per pair of files. A training shard comes from one source file and takes its collection
    name from it: the shortest end of the path that tells the file from the others. Blank lines are kept. Raises
    UserError if two sides differ in length, a line is not UTF-8 or a split is empty.
    """
    corpus = Corpus(context.folder)
    splits: dict[str, list[int]] = {split: [] for split in files}
    collections: list[str] = []
    pairs_of_files = [(split, sides) for split in files for sides in files[split]]
    calls = [
        (Corpus(corpus.parts / f"{i:05d}"), split, languages, *sides) for i, (split, sides) in enumerate(pairs_of_files)
    ]
    names = _names([source for source, _ in files["train"]])
    for done, (call, sizes) in enumerate(zip(calls, context.map(read_files, calls), strict=True), start=1):
        part, split, _, source, _ = call
        move_shards(part, corpus, split, languages, sizes, splits[split])
        if split == "train":
            collections += [names[source]] * len(sizes)
        context.progress(done, len(calls), "files")
    rmtree(corpus.parts)
    for split, sizes in splits.items():
        if not sizes:
            source, target = files[split][0]
            raise UserError(f"{source} and {target} are empty: {split!r} needs at least one pair")
    read = {split: sum(sizes) for split, sizes in splits.items()}
    corpus.describe(languages, splits, {"read": read}, collections)
    return corpus


def read_files(part: Corpus, split: str, languages: tuple[str, str], source: Path, target: Path) -> list[int]:
    """Copies two aligned files into shards of a split of `part`; returns the number of pairs in each shard."""
    rmtree(part.folder, ignore_errors=True)  # left by an attempt that was killed
    return write_shards(part, split, languages, read_pairs(source, target), SHARD_PAIRS)


def write_shards(
    corpus: Corpus, split: str, languages: tuple[str, str], pairs: Iterable[tuple[str, str]], shard_pairs: int
) -> list[int]:
    """Writes a split in shards of at most `shard_pairs`; returns the number of pairs in each shard."""
    sizes: list[int] = []
    (corpus.folder / split).mkdir(parents=True, exist_ok=True)
    for block in _blocks(iter(pairs), shard_pairs):
        source, target = (corpus.shard_path(split, len(sizes), language) for language in languages)
        sizes.append(write_pairs(source, target, block))
    return sizes


def move_shards(
    part: Corpus, corpus: Corpus, split: str, languages: tuple[str, str], sizes: Sequence[int], present: list[int]
) -> None:
    """Appends the shards of a split of `part`, of `sizes` pairs, to the split in `corpus`.

    `present` lists the sizes of the shards that `corpus` has; the new ones are added to it.
    """
    (corpus.folder / split).mkdir(parents=True, exist_ok=True)
    for number in range(len(sizes)):
        for language in languages:
            part.shard_path(split, number, language).rename(corpus.shard_path(split, len(present) + number, language))
    present += sizes


def read_references(corpus: Corpus, split: str) -> list[str]:
    """Returns the target side of a split, all shards in order."""
    return [line for shard in corpus.shards(split) for line in read_lines(shard.target)]


def content_sha256(path: Path) -> str:
    """Returns a file's sha256, cached while its size and modification time stay the same. Raises UserError."""
    try:
        status = path.stat()
        return _sha256_at(path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check the path") from None


@lru_cache(maxsize=4096)
def _sha256_at(path: Path, size_bytes: int, changed_ns: int) -> str:
    """Hashes the file; the other arguments only key the cache."""
    return file_sha256(path)


def _names(paths: Iterable[Path]) -> dict[Path, str]:
    """Returns, for each path, its shortest end that tells it from the others."""
    parts = {path: path.absolute().parts for path in paths}
    names = {}
    for path, path_parts in parts.items():
        candidates, length = set(parts.values()), 0
        while len(candidates) > 1 or not length:
            length += 1
            candidates = {other for other in candidates if other[-length:] == path_parts[-length:]}
        names[path] = "/".join(path_parts[-length:])
    return names


def _blocks(pairs: Iterator[tuple[str, str]], size: int) -> Iterator[Iterator[tuple[str, str]]]:
    """Yields consecutive, non-empty runs of at most `size` pairs; each must be consumed before the next."""
    for first in pairs:
        yield chain([first], islice(pairs, size - 1))
