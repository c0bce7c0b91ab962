"""Text of two collections, prepared like in a workflow: cleaned, a vocabulary learned, encoded."""

from pathlib import Path
from typing import NamedTuple

from pipeline.artifacts import Corpus, EncodedDataset, Vocabulary
from pipeline.settings import CleaningSettings, EncodingSettings, VocabularySettings
from pipeline.text.aligned import blocks
from pipeline.text.cleaning import write_corpus
from pipeline.text.encoding import encode
from pipeline.text.overlap import Overlaps, count
from pipeline.text.vocabulary import learn
from tests.support.contexts import new_context
from tests.support.parallel_text import set_of, text_pairs

FLICKR_PAIRS, SAMPLED_PAIRS, PIECES, MAX_TOKENS = 400, 100, 400, 80
NOISE = [
    ("", "leer"),
    ("blank", " \u2028\t"),
    ("word " * 251, "Wort " * 251),
    ("one", "eins zwei drei vier fünf sechs sieben acht neun zehn"),
]
"""Two blank pairs, one overlong pair and one with a large length ratio."""


def every_character(size: int, **more: int) -> VocabularySettings:
    """Settings of a small vocabulary with every character of its text and no bytes."""
    return VocabularySettings(size=size, character_coverage=1, byte_fallback=False, **more)


class PreparedText(NamedTuple):
    corpus: Corpus
    vocabulary: Vocabulary
    dataset: EncodedDataset
    overlaps: Overlaps


def prepare_text(folder: Path, parallel_text: Path) -> PreparedText:
    """400 pairs of Multi30k, the first with a character that the vocabulary lacks, then NOISE and some of Europarl."""

    def pairs(name: str, number: int) -> list[tuple[str, str]]:
        read = text_pairs(parallel_text, name, number)
        return [(source, target) for source, target in read if source.strip() and target.strip()]

    flickr = [("A sun: 日 .", "Eine Sonne: 日 ."), *pairs("multi30k/train", FLICKR_PAIRS - 1)]
    europarl = [*NOISE, *pairs("europarl_sample/train", 100)]
    parts = [*blocks("flickr", flickr, FLICKR_PAIRS), *blocks("europarl", europarl, FLICKR_PAIRS)]
    dev = set_of(folder / "dev", [("日", ""), *pairs("multi30k/val", 30)])

    corpus = write_corpus(new_context(folder / "corpus"), ("en", "de"), parts, CleaningSettings())
    vocabulary = learn(new_context(folder / "vocabulary"), corpus, every_character(PIECES, sample_pairs=SAMPLED_PAIRS))
    dataset = encode(new_context(folder / "dataset"), corpus, dev, vocabulary, EncodingSettings(max_tokens=MAX_TOKENS))
    return PreparedText(corpus, vocabulary, dataset, count(new_context(folder / "overlap"), corpus, [dev]))
