"""Measures what single characters, bytes and other pieces of a vocabulary are worth on text it was not learned from.

    python tests/benchmarks/character_coverage.py DATA [--sizes 8000,34000,37000] [--signs 5000]

Vocabularies are learned from the training files of Tatoeba and Europarl, English and German, below the folder DATA,
that of AIAYN_DATA, and applied to newstest2013. It prints one table for each size, in Markdown. `--signs` puts a word
of another script into one training pair in 500, as text from the web has: the words are generated, of that many signs.
"""

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from model.config import UNKNOWN_ID
from pipeline.settings import VocabularySettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus
from pipeline.text.aligned import write_shards
from pipeline.text.lines import read_lines, read_pairs
from pipeline.text.vocabulary import learn, load, piece_kinds

LANGUAGES = ("en", "de")
LEARNED_FROM = ("tatoeba_en_de/train", "europarl_sample/train")
TESTED_ON = "newstest2013/newstest2013"
CHOICES = (
    *((coverage, False) for coverage in (1.0, 0.9999, 0.9995)),
    *((coverage, True) for coverage in (1.0, 0.99999, 0.9999, 0.9995)),
)
"""Coverage, and whether bytes stand in for what it leaves out."""
FOREIGN_EVERY, FOREIGN_LENGTH, FIRST_SIGN = 500, 6, 0x4E00
"""Training pairs from one with a foreign word to the next, the word's length, and the first of its signs."""
COLUMNS = ("coverage", "bytes", "characters", "merges")
FIGURES = ("unknown", "sentences with unknown", "byte tokens", "tokens per word", "exact")
"""For each language: tokens, shares of sentences, and the share of sentences that encoding and decoding leave alone."""


def with_foreign_words(pairs: Iterable[tuple[str, str]], signs: int) -> Iterator[tuple[str, str]]:
    """Adds a foreign word to both sides of every FOREIGN_EVERY-th pair; the k-th most frequent sign occurs as 1/k."""
    random = np.random.default_rng(1)
    for i, (source, target) in enumerate(pairs):
        word = ""
        if signs and i % FOREIGN_EVERY == 0:
            ranks = np.exp(random.random(FOREIGN_LENGTH) * np.log(signs)).astype(int)
            word = " " + "".join(chr(FIRST_SIGN + rank) for rank in ranks)
        yield source + word, target + word


def measure(folder: Path, corpus: Corpus, tests: Sequence[list[str]], settings: VocabularySettings) -> list[str]:
    """Learns a vocabulary in `folder` and returns its row."""
    folder.mkdir()
    processor = load(learn(Context(folder), corpus, settings).path)
    kinds = piece_kinds(processor)
    characters, others = int(kinds.is_character.sum()), int(kinds.is_byte.sum()) + 4
    row = [
        f"{settings.character_coverage:g}",
        "yes" if settings.byte_fallback else "no",
        f"{characters}",
        f"{settings.size - characters - others}",
    ]
    for lines in tests:
        encoded: list[list[int]] = processor.encode(lines, num_threads=1)
        ids = np.fromiter(chain.from_iterable(encoded), np.int64)
        with_unknown = sum(UNKNOWN_ID in one for one in encoded)
        exact = sum(text == line for text, line in zip(processor.decode(encoded, num_threads=1), lines, strict=True))
        row += [
            f"{(ids == UNKNOWN_ID).sum()}",
            f"{with_unknown / len(lines):.2%}",
            f"{kinds.is_byte[ids].sum()}",
            f"{len(ids) / sum(len(line.split()) for line in lines):.4f}",
            f"{exact / len(lines):.2%}",
        ]
    return row


def main() -> None:
    """Reads the options, learns one vocabulary after the other and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sizes", default="8000,34000,37000")
    parser.add_argument("--signs", type=int, default=0)
    options = parser.parse_args()

    def path(name: str, language: str) -> Path:
        found: Path = options.data / f"{name}.{language}.gz"
        return found

    tests = [list(read_lines(path(TESTED_ON, language))) for language in LANGUAGES]
    with tempfile.TemporaryDirectory() as name:
        corpus = Corpus(Path(name) / "corpus")
        pairs = chain.from_iterable(read_pairs(*(path(name, side) for side in LANGUAGES)) for name in LEARNED_FROM)
        sizes = write_shards(corpus, "train", LANGUAGES, with_foreign_words(pairs, options.signs), 100_000)
        corpus.describe(LANGUAGES, {"train": sizes}, {})
        columns = (*COLUMNS, *(f"{language}: {figure}" for language in LANGUAGES for figure in FIGURES))
        for size in map(int, options.sizes.split(",")):
            print(f"\n{size} pieces\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
            for i, (coverage, fallback) in enumerate(CHOICES):
                settings = VocabularySettings(size=size, character_coverage=coverage, byte_fallback=fallback)
                row = measure(Path(name) / f"{size}-{i}", corpus, tests, settings)
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
