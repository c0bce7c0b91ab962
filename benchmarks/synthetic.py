"""Generates data for benchmarks: encoded datasets with the lengths of real text, and raw text like WMT14's.

    dataset = write_dataset(folder, LENGTHS["multi30k"], vocabulary_size=8_000)
    for english, german in blocks("de", pairs=100_000, seed=1): ...

The ids of a dataset are log-uniform: the r-th most frequent of V has probability log(1 + 1/r) / log V (Zipf's law). Raw
text has WMT14's lengths, alphabets and word frequencies, on which the cost of preparation depends. Words per line, the
shares of the most frequent words, and word lengths were measured on the first 20,000 pairs of Europarl v7 and on
newstest2013; for French on newstest2013 only, in proportion to its English. The number of distinct words is 1.5× the
measured one, since WMT14 includes web text.
"""

import math
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from model.config import END_ID
from pipeline.artifacts import EncodedDataset
from pipeline.corpora.lengths import PairLengths, draw_lengths
from pipeline.settings import EncodingSettings
from pipeline.text.encoding import id_lists, write_shard
from pipeline.text.segmentation import id_type

MAX_TOKENS = EncodingSettings().max_tokens
DEV_PAIRS = 8
BLOCK_PAIRS = 10_000
"""Pairs per block."""
SYLLABLES = 1280
"""Parts of a language's syllables: 16 onsets, 8 vowels, 10 codas."""
DIFFERENT_WORDS = 4_000_000
SPREAD = 7_368_787
"""A prime that scatters ranks: neighbours have dissimilar, and all ranks distinct, spellings."""


@dataclass(frozen=True, eq=False)
class Language:
    """The spelling and the frequencies of a language's words."""

    onsets: tuple[str, ...]
    vowels: tuple[str, ...]
    codas: tuple[str, ...]
    longer_from_rank: tuple[int, ...]
    """Frequency ranks at which words get one more syllable."""
    capital_every: int
    """Every N-th word is capitalized."""
    shares: tuple[float, ...]
    """Shares of a text's 1, 10, 100, 1,000, 10,000 and 100,000 most frequent words."""


ENGLISH = Language(
    onsets=(*"bcdfghlmnprstw", "th", "pr"),
    vowels=(*"aeiou", "ea", "ou", "y"),
    codas=("", *"nrstld", "ng", "ck", "nt"),
    longer_from_rank=(500, 20_000, 500_000),
    capital_every=9,
    shares=(0.070, 0.257, 0.499, 0.735, 0.960, 0.993),
)
TARGETS = {
    "de": Language(
        onsets=(*"bdfghklmnrstwz", "sch", "v"),
        vowels=(*"aeiu", "ei", "ie", "ü", "ä"),
        codas=("", *"nrstl", "ch", "ng", "ß", "ten"),
        longer_from_rank=(200, 6_000, 90_000),
        capital_every=3,
        shares=(0.039, 0.185, 0.433, 0.667, 0.910, 0.985),
    ),
    "fr": Language(
        onsets=(*"bcdfglmnprstv", "ch", "qu", "j"),
        vowels=(*"aeiou", "ai", "ou", "é"),
        codas=("", *"nrstlx", "nt", "es", "ion"),
        longer_from_rank=(300, 12_000, 200_000),
        capital_every=9,
        shares=(0.063, 0.241, 0.502, 0.721, 0.945, 0.990),
    ),
}
_ENGLISH_WORDS = (0.7, 2.9, 6.0, 13.6, 21.6, 32.2, 54.0, 75.6, 105.9)
WORDS = {
    "de": PairLengths(_ENGLISH_WORDS, (0.7, 2.9, 5.7, 12.5, 19.9, 29.9, 50.3, 71.1, 102.1), 0.951, 4_500_000),
    "fr": PairLengths(_ENGLISH_WORDS, (0.7, 3.2, 6.4, 14.8, 23.4, 35.8, 59.2, 83.5, 115.0), 0.955, 40_800_000),
}
"""Words per line, separated by spaces."""
COMMA_EVERY = 15


def draw_ids(lengths: NDArray[np.int64], vocabulary_size: int, random: np.random.Generator) -> pa.ListArray:
    """Draws sentences of these lengths: ids above the special ones, lowest most frequent, then END_ID."""
    first = END_ID + 1
    ranks = np.exp(random.random(int(lengths.sum()), dtype=np.float32) * math.log(vocabulary_size - first))
    ids: NDArray[Any] = (ranks + (first - 1)).clip(max=vocabulary_size - 1).astype(id_type(vocabulary_size))
    ids[np.cumsum(lengths) - 1] = END_ID
    return id_lists(ids, lengths)


def write_dataset(folder: Path, lengths: PairLengths, vocabulary_size: int, seed: int = 1) -> EncodedDataset:
    """Writes an encoded dataset like `pipeline.text.encoding`, with splits train and dev but without `joint.model`."""
    dataset, random, splits = EncodedDataset(folder), np.random.default_rng(seed), {}
    for split, pairs, limit in (("train", lengths.pairs, MAX_TOKENS), ("dev", DEV_PAIRS, None)):
        (folder / split).mkdir(parents=True)
        source, target = (draw_ids(side, vocabulary_size, random) for side in draw_lengths(lengths, pairs, random))
        splits[split] = [write_shard(folder / split / "00000.arrow", source, target, limit)]
    dataset.write_json("dataset.json", {"vocabulary_size": vocabulary_size, "splits": splits})
    return dataset


@cache
def spell(rank: int, language: Language) -> str:
    """Spells the word of a frequency rank, from 1. Rarer words are longer, and each spelling is unique."""
    if rank % 41 == 0:
        return str(rank // 41)
    n_syllables = 1 + bisect(language.longer_from_rank, rank)
    code, word = rank * SPREAD % SYLLABLES**n_syllables, ""
    for _ in range(n_syllables):
        code, syllable = divmod(code, SYLLABLES)
        onset, rest = divmod(syllable, 80)
        vowel, coda = divmod(rest, 10)
        word += language.onsets[onset] + language.vowels[vowel] + language.codas[coda]
    return word.capitalize() if rank % language.capital_every == 0 else word


def blocks(target: str, pairs: int, seed: int) -> Iterator[tuple[list[str], list[str]]]:
    """Yields English lines and their translations, BLOCK_PAIRS at a time. The same seed yields the same text."""
    random = np.random.default_rng(seed)
    for begin in range(0, pairs, BLOCK_PAIRS):
        source, translation = draw_lengths(WORDS[target], min(BLOCK_PAIRS, pairs - begin), random)
        yield _lines(source, ENGLISH, random), _lines(translation, TARGETS[target], random)


def _lines(lengths: NDArray[np.int64], language: Language, random: np.random.Generator) -> list[str]:
    """Draws sentences with these numbers of words."""
    n_words = int(lengths.sum())
    rank_bounds = [1, *(10**i + 1 for i in range(len(language.shares))), DIFFERENT_WORDS]
    log_ranks = np.interp(random.random(n_words), [0, *language.shares, 1], np.log(rank_bounds))
    ranks, places = np.unique(np.exp(log_ranks).astype(np.int32), return_inverse=True)
    words = np.array([spell(rank, language) for rank in ranks.tolist()], object)[places].tolist()
    for i in np.unique(random.integers(0, n_words, n_words // COMMA_EVERY)).tolist():
        words[i] += ","
    ends = np.cumsum(lengths).tolist()
    sentences = (" ".join(words[begin:end]) for begin, end in pairwise([0, *ends]))
    return [f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences]
