"""Training text in parts that tasks clean, and evaluation sets, both from aligned files.

parts = parts_of("europarl-v7", source, target, 100_000)      # pipeline.text.cleaning.write_corpus makes shards of them
dev = copy_set(context, "dev", ("en", "de"), source, target)
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pipeline.artifacts import EvaluationSet
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.records import EvaluationSetRecord
from pipeline.store.hashes import cached, file_sha256
from pipeline.text.lines import DroppedLine, read_pairs, readable, write_pairs
from pipeline.text.normalisation import normalised

log = logging.getLogger(__name__)

Pairs = Iterable[tuple[str, str]]


class Part(NamedTuple):
    """Training pairs of one shard, as they are read or generated; picklable."""

    collection: str
    """The archive or file they are from."""
    pairs: Callable[[], Pairs]
    """Returns the pairs, in any process."""
    read: int
    """Number of pairs, with those dropped while reading."""
    dropped: Mapping[str, int] = {}
    """Number of pairs dropped while reading, by reason."""


def parts_of(collection: str, source: Path, target: Path, size: int) -> Iterator[Part]:
    """Reads two aligned files as parts of at most `size` pairs, in order.

    Pairs with a line that is not UTF-8 or too long are dropped and counted; a warning names the first for each reason.
    Raises UserError like `read_pairs`.
    """
    dropped, told = Counter[str](), set[str]()

    def drop(line: DroppedLine) -> None:
        if line not in told:
            log.warning("%s; pairs with such lines are dropped", line.problem)
        told.add(line)
        dropped[str(line)] += 1

    yield from blocks(collection, read_pairs(source, target, notice=True, drop=drop), size, dropped)


def blocks(collection: str, pairs: Pairs, size: int, dropped: Counter[str] | None = None) -> Iterator[Part]:
    """Yields consecutive parts of `size` pairs; each takes along what has been counted in `dropped` since the last."""
    pairs, dropped = iter(pairs), Counter() if dropped is None else dropped
    while (block := list(islice(pairs, size))) or dropped:
        sides = ("\n".join([*side, ""]).encode() for side in (zip(*block, strict=True) if block else ((), ())))
        yield Part(collection, partial(_lines, *sides), len(block) + dropped.total(), dict(dropped))
        dropped.clear()


def _lines(source: bytes, target: bytes) -> Pairs:
    """Returns the pairs of lines of two texts in which each line has its end."""
    return zip(*(side.decode().split("\n")[:-1] for side in (source, target)), strict=True)


def copy_set(context: Context, name: str, languages: tuple[str, str], source: Path, target: Path) -> EvaluationSet:
    """Copies two aligned files into an evaluation set.

    Raises UserError if the sides differ in length, a line is not UTF-8 or the files are empty.
    """
    text = write_set(context, name, languages, read_pairs(source, target, notice=True))
    if not text.load().sentences:
        raise no_pair(source, target)
    return text


def write_set(
    context: Context,
    name: str,
    languages: tuple[str, str],
    pairs: Pairs,
    report: Mapping[str, Any] = MappingProxyType({}),
) -> EvaluationSet:
    """Writes an evaluation set of `normalised` lines, blank ones included."""
    source_path, target_path = (context.folder / f"{name}.{language}" for language in languages)
    kept = ((normalised(source), normalised(target)) for source, target in pairs)
    sentences = write_pairs(source_path, target_path, kept)
    return EvaluationSet(context.folder).write(
        EvaluationSetRecord(
            name=name, source=languages[0], target=languages[1], sentences=sentences, report=dict(report)
        )
    )


def no_pair(source: Path, target: Path) -> UserError:
    """Returns the error for empty files."""
    return UserError(f"no pair in {' and '.join(dict.fromkeys(map(str, (source, target))))}; at least one is needed")


def cached_sha256(path: Path) -> str:
    """Returns a file's sha256, computed once (`cached`). Raises UserError if it cannot be read."""
    with readable(path):
        return cached(path, "sha256", file_sha256)
