"""Writes training text as corpus shards of bounded size, and evaluation sets, checking that lines are aligned.

writer = CorpusWriter(context, ("en", "de"))
for report in writer.add(read_part, [("europarl-v7", (path,))]):    # one call of `context.map` per part
    ...
corpus = writer.finish({"read": writer.pairs})
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from os.path import commonpath, relpath
from pathlib import Path, PurePath
from shutil import rmtree
from types import MappingProxyType
from typing import Any

from pipeline.errors import UserError
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus, EvaluationSet
from pipeline.store.hashes import cached, file_sha256
from pipeline.store.records import CorpusRecord, EvaluationSetRecord
from pipeline.store.scratch import Scratch, Written
from pipeline.text.lines import read_pairs, readable, write_pairs
from pipeline.text.normalisation import normalised

SHARD_PAIRS = 100_000
"""Pairs per shard: the unit that later stages hold in memory."""


class CorpusWriter:
    """Builds a corpus part by part; each part is written by one call, on any node."""

    def __init__(self, context: Context, languages: tuple[str, str]) -> None:
        self._context, self.languages = context, languages
        self._corpus = Corpus(context.folder)
        self._shards: list[int] = []
        self._collections: list[str] = []

    @property
    def pairs(self) -> int:
        """The number of pairs so far."""
        return sum(self._shards)

    def add(
        self, write: Callable[..., tuple[list[int], Any]], calls: Sequence[tuple[str, Sequence[Any]]]
    ) -> Iterator[Any]:
        """Appends the shards written by each call, in order; yields each call's report as it arrives.

        A call is a collection name and arguments. `write(part, *arguments)` writes shards to `part` by `write_shards`,
        and returns their numbers of pairs and a report.
        """
        parts = [(self._context.scratch, f".parts/{i:05d}", write, *given) for i, (_, given) in enumerate(calls)]
        for (collection, _), part in zip(calls, self._context.map(write_part, parts), strict=True):
            (shards, report), written = part
            for each in written:
                number, _, language = PurePath(each.name).name.partition(".")
                path = self._corpus.shard_path(len(self._shards) + int(number), language)
                self._context.add(each, path.name)
            self._shards += shards
            self._collections += [collection] * len(shards)
            yield report

    def finish(self, report: Mapping[str, Any], symbols: Iterable[str] = ()) -> Corpus:
        """Writes `corpus.json` and returns the corpus."""
        rmtree(self._corpus.folder / ".parts", ignore_errors=True)  # empty or missing
        source, target = self.languages
        fields = {"source": source, "target": target, "shards": self._shards, "collections": self._collections}
        self._corpus.write(CorpusRecord(**fields, symbols=sorted(symbols), report=report))
        return self._corpus


def write_part(
    scratch: Scratch, name: str, write: Callable[..., tuple[list[int], Any]], *arguments: Any
) -> tuple[tuple[list[int], Any], list[Written]]:
    """Writes a part of a corpus in this task; returns the result of `write`, and the files."""
    with scratch.writing(name) as writing:
        result = write(Corpus(writing.paths[0]), *arguments)
    return result, writing.written


def write_shards(
    corpus: Corpus, languages: tuple[str, str], pairs: Iterable[tuple[str, str]], shard_pairs: int
) -> list[int]:
    """Writes pairs as shards of at most `shard_pairs`; returns the number of pairs in each."""
    corpus.folder.mkdir(parents=True, exist_ok=True)
    sizes: list[int] = []
    for block in _blocks(iter(pairs), shard_pairs):
        source, target = (corpus.shard_path(len(sizes), language) for language in languages)
        sizes.append(write_pairs(source, target, block))
    return sizes


def copy_corpus(context: Context, languages: tuple[str, str], files: Sequence[tuple[Path, Path]]) -> Corpus:
    """Copies pairs of (source, target) files into a corpus, in order (`copy_files`).

    A shard's collection is named after its source file, from the folder common to all. Blank lines are kept. Raises
    UserError like `copy_files`, and if all files are empty.
    """
    writer, folder = CorpusWriter(context, languages), commonpath([source.absolute().parent for source, _ in files])
    copy_files(context, writer, [(relpath(source, folder), source, target) for source, target in files])
    if not writer.pairs:
        raise _empty(*files[0])
    return writer.finish({"read": writer.pairs})


def copy_files(context: Context, writer: CorpusWriter, files: Sequence[tuple[str, Path, Path]]) -> list[int]:
    """Copies (collection, source, target) files into a corpus as shards of SHARD_PAIRS; returns the pairs of each file.

    One call of `context.map` per pair of files. Pairs that are not UTF-8 are left to cleaning, which drops and counts
    them. Raises UserError, naming file and line, if two sides differ in length or a line is too long.
    """
    calls = [(collection, (writer.languages, source, target)) for collection, source, target in files]
    sizes = []
    for pairs in writer.add(_copy, calls):
        sizes.append(pairs)
        context.progress(len(sizes), len(files), "files")
    return sizes


def _copy(part: Corpus, languages: tuple[str, str], source: Path, target: Path) -> tuple[list[int], int]:
    pairs = read_pairs(source, target, "surrogateescape", notice=True)
    shards = write_shards(part, languages, pairs, SHARD_PAIRS)
    return shards, sum(shards)


def copy_set(context: Context, name: str, languages: tuple[str, str], source: Path, target: Path) -> EvaluationSet:
    """Copies two aligned files into an evaluation set.

    Raises UserError if the sides differ in length, a line is not UTF-8 or the files are empty.
    """
    text = write_set(context, name, languages, read_pairs(source, target, notice=True))
    if not text.load().sentences:
        raise _empty(source, target)
    return text


def write_set(
    context: Context,
    name: str,
    languages: tuple[str, str],
    pairs: Iterable[tuple[str, str]],
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


def _empty(source: Path, target: Path) -> UserError:
    return UserError(f"{source} and {target} are empty; at least one pair is needed")


def content_sha256(path: Path) -> str:
    """Returns a file's sha256, computed once (`cached`). Raises UserError if it cannot be read."""
    with readable(path):
        return cached(path, "sha256", file_sha256)


def _blocks(pairs: Iterator[tuple[str, str]], size: int) -> Iterator[Iterator[tuple[str, str]]]:
    """Yields consecutive blocks of at most `size` pairs; consume each before requesting the next."""
    for first in pairs:
        yield chain([first], islice(pairs, size - 1))
