"""Parallel text for the tests: corpora of it and, where AIAYN_DATA is unset, the embedded grammar's in its folders."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random

from pipeline.corpora.embedded import EmbeddedSettings, generate
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus
from pipeline.text.aligned import write_shards
from pipeline.text.lines import read_lines, write_lines

FILES = {
    "train": {"multi30k/train": (2000, 3), "europarl_sample/train": (4500, 6)},
    "dev": {"multi30k/val": (200, 3)},
    "test": {"multi30k/test_2016_flickr": (300, 3), "newstest2013/newstest2013": (100, 6)},
}
"""Files made of a split of the embedded corpus: their pairs, and the most sentences that a line has."""


def write_parallel_text(folder: Path) -> Path:
    """English and German files: lines of one sentence to several, mostly short ones, and no sentence in two splits."""
    wanted = {split: sum(pairs * (most + 1) // 2 for pairs, most in files.values()) for split, files in FILES.items()}
    sizes = {f"{split}_pairs": sentences for split, sentences in wanted.items()}
    (folder / "sentences").mkdir(parents=True)
    corpus = generate(Context(folder / "sentences"), EmbeddedSettings.model_validate(sizes))
    for split, files in FILES.items():
        for language in ("en", "de"):
            sentences, random = _sentences(corpus, split, language), Random(split)  # alike for both languages
            for name, (pairs, most) in files.items():
                path = folder / f"{name}.{language}.gz"
                path.parent.mkdir(exist_ok=True)
                lengths = [min(random.randint(1, most), random.randint(1, most)) for _ in range(pairs)]
                write_lines(path, (" ".join(islice(sentences, length)) for length in lengths))
    return folder


def _sentences(corpus: Corpus, split: str, language: str) -> Iterator[str]:
    for shard in corpus.shards(split):
        yield from read_lines(shard.source if language == "en" else shard.target)


def text_pairs(parallel_text: Path, name: str, n: int) -> list[tuple[str, str]]:
    """The first `n` English and German lines of a file, e.g. multi30k/train."""
    sides = [islice(read_lines(parallel_text / f"{name}.{language}.gz"), n) for language in ("en", "de")]
    return list(zip(*sides, strict=True))


def corpus_of(
    folder: Path,
    splits: Mapping[str, Iterable[tuple[str, str]]],
    languages: tuple[str, str] = ("en", "de"),
    shard_pairs: int = 1000,
    collections: Sequence[str] | None = None,
) -> Corpus:
    """A corpus of pairs by split, in shards of at most `shard_pairs`; `collections` are those of training shards."""
    corpus = Corpus(folder)
    sizes = {split: write_shards(corpus, split, languages, pairs, shard_pairs) for split, pairs in splits.items()}
    corpus.describe(languages, sizes, {}, collections)
    return corpus
