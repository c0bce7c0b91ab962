"""Parallel text: corpora of it and, if AIAYN_DATA is unset, generated text in the same folders."""

import gzip
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from pipeline.artifacts import ALL, Corpus, EvaluationSet
from pipeline.context import Context
from pipeline.corpora.embedded import EmbeddedSettings, generate, generate_set
from pipeline.records import CorpusRecord
from pipeline.settings import CleaningSettings
from pipeline.text.aligned import blocks, write_set
from pipeline.text.lines import read_lines, read_pairs, write_pairs

FILES = {
    "train": {"multi30k/train": (2000, 3), "europarl_sample/train": (1000, 6)},
    "dev": {"multi30k/val": (200, 3)},
    "test": {"multi30k/test_2016_flickr": (300, 3), "newstest2013/newstest2013": (100, 6)},
}
"""Files from a split of the embedded corpus: their pairs, and the maximum number of sentences per line."""


def write_parallel_text(folder: Path) -> Path:
    """English and German files: lines of one to several sentences, mostly short, without overlap between splits."""
    wanted = {split: sum(pairs * (most + 1) // 2 for pairs, most in files.values()) for split, files in FILES.items()}
    settings = EmbeddedSettings.model_validate({f"{split}_pairs": sentences for split, sentences in wanted.items()})
    (folder / "sentences").mkdir(parents=True)
    for split, files in FILES.items():
        pairs_here = [*_sentences(folder / "sentences", settings, split)]
        for side, language in enumerate(("en", "de")):
            sentences, random = iter(pairs_here), Random(split)  # the same for both languages
            for name, (pairs, most) in files.items():
                path = folder / f"{name}.{language}.gz"
                path.parent.mkdir(exist_ok=True)
                lengths = [min(random.randint(1, most), random.randint(1, most)) for _ in range(pairs)]
                lines = (" ".join(pair[side] for pair in islice(sentences, length)) + "\n" for length in lengths)
                path.write_bytes(gzip.compress("".join(lines).encode()))
    return folder


def _sentences(folder: Path, settings: EmbeddedSettings, split: Any) -> Iterator[tuple[str, str]]:
    if split == "train":
        (folder / split).mkdir()
        for shard in generate(Context(folder / split), settings.text(split), CleaningSettings()).shards:
            yield from read_pairs(shard.source, shard.target)
    else:
        text = generate_set(Context(folder), settings.text(split))
        yield from read_pairs(text.source, text.references)


def text_pairs(parallel_text: Path, name: str, n: int) -> list[tuple[str, str]]:
    sides = [islice(read_lines(parallel_text / f"{name}.{language}.gz"), n) for language in ("en", "de")]
    return list(zip(*sides, strict=True))


def corpus_of(
    folder: Path,
    pairs: Iterable[tuple[str, str]],
    languages: tuple[str, str] = ("en", "de"),
    shard_pairs: int = 1000,
    **described: Any,
) -> Corpus:
    """Training text in shards of at most `shard_pairs`; `described` are its statistics."""
    corpus = Corpus(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shards = [
        write_pairs(*(corpus.shard_path(number, language) for language in languages), *[part.pairs()])
        for number, part in enumerate(blocks(ALL, pairs, shard_pairs))
    ]
    record = {"source": languages[0], "target": languages[1], "shards": shards, "collections": [ALL] * len(shards)}
    corpus.write(CorpusRecord(**record | described))
    return corpus


def set_of(
    folder: Path, pairs: Iterable[tuple[str, str]], name: str = "dev", languages: tuple[str, str] = ("en", "de")
) -> EvaluationSet:
    folder.mkdir(parents=True, exist_ok=True)
    return write_set(Context(folder), name, languages, pairs)


def pairs_of(corpus: Corpus) -> list[tuple[str, str]]:
    return [pair for shard in corpus.shards for pair in read_pairs(shard.source, shard.target)]
