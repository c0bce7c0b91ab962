"""Learns one vocabulary for both languages: byte-pair encoding with "a shared source-target vocabulary" (§5.1).

Text is not normalised (rule `identity`): translations are scored against raw references, so the model must read and
write the raw characters. Only runs of spaces become one space. A character is a piece if it is among the most frequent
ones that make up `character_coverage` of the text. Any other is spelled in the bytes of its UTF-8 with `byte_fallback`,
and unknown without.

Pieces are learned from counted words. A side without spaces between words (`pipeline.text.word_spaces`) has none to
count: there they are learned from whole lines, spread evenly over the sample.

Where the target side is of linearised trees (§6.3), each of their symbols is a piece, with the space before it.
"""

import io
import re
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from model.config import BEGIN_ID, END_ID, PAD_ID, UNKNOWN_ID
from pipeline.errors import UserError
from pipeline.settings import VocabularySettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus, Shard, Vocabulary
from pipeline.store.scratch import Scratch
from pipeline.text.lines import MAX_LINE_BYTES, read_pairs, write_lines
from pipeline.text.word_spaces import sides_with_word_spaces

TOO_LARGE = re.compile(r"Vocabulary size too high .*<= (\d+)")
TOO_SMALL = re.compile(r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)")
SPACE_SIGN = "\u2581"
"""Sentencepiece's sign for a space."""
KEPT_WORDS = 400_000
"""Most frequent words, from which the pieces are learned. Memory grows with them, and rarer words make no pieces."""
KEPT_LINES = 200_000
"""Most lines of a side without spaces between words, from which its pieces are learned: about 4 KB of memory each."""


def learn(context: Context, corpus: Corpus, settings: VocabularySettings) -> Vocabulary:
    """Trains exactly `settings.size` pieces on a corpus; the same one gives the same bytes.

    Words are counted with one call of `context.map` per shard. vocabulary.json is {"size", "sampled_pairs",
    "train_pairs", "words": distinct words, or parts of lines between spaces, that it was learned from}. Raises
    UserError if the text allows no vocabulary of that size, naming the nearest size that it does allow.
    """
    words = _count(context, corpus, settings.sample_pairs)
    model = io.BytesIO()
    options: dict[str, Any] = {"byte_fallback": settings.byte_fallback}
    if symbols := corpus.symbols:
        options["user_defined_symbols"] = [SPACE_SIGN + symbol for symbol in symbols]
    try:
        SentencePieceTrainer.train(
            sentence_iterator=(f"{word}\t{number}" for word, number in words),
            input_format="tsv",
            model_writer=model,
            model_type="bpe",
            vocab_size=settings.size,
            character_coverage=settings.character_coverage,
            **options,
            normalization_rule_name="identity",
            max_sentence_length=MAX_LINE_BYTES,
            pad_id=PAD_ID,
            unk_id=UNKNOWN_ID,
            bos_id=BEGIN_ID,
            eos_id=END_ID,
            num_threads=1,  # is written into the model, so it must not depend on the machine
            minloglevel=2,
        )
    except RuntimeError as error:
        if largest := TOO_LARGE.search(str(error)):
            raise _wrong_size(settings.size, f"allows at most {largest[1]} pieces") from None
        spelled = "character and byte" if settings.byte_fallback else "character"
        if smallest := TOO_SMALL.search(str(error)):
            raise _wrong_size(settings.size, f"needs at least {smallest[1]} pieces, one for each {spelled}") from None
        raise
    vocabulary = Vocabulary(context.folder)
    vocabulary.path.write_bytes(model.getvalue())
    processor = load(vocabulary.path)
    if len(processor) != settings.size:
        raise _wrong_size(settings.size, f"allows {len(processor)} pieces")
    pieces = (f"{processor.id_to_piece(i)}\t{processor.get_score(i):g}" for i in range(len(processor)))
    write_lines(vocabulary.folder / "joint.vocab", pieces)
    sampled_pairs = min(corpus.pairs, settings.sample_pairs)
    figures = {"size": settings.size, "sampled_pairs": sampled_pairs, "train_pairs": corpus.pairs, "words": len(words)}
    vocabulary.write_json("vocabulary.json", figures)
    return vocabulary


def load(path: Path) -> SentencePieceProcessor:
    """Opens the model. Raises UserError if it is missing, damaged or has other special ids than model.config."""
    try:
        processor = SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError):
        raise UserError(f"{path} is missing or no sentencepiece model; learn the vocabulary again") from None
    ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if ids != (PAD_ID, UNKNOWN_ID, BEGIN_ID, END_ID):
        raise UserError(
            f"{path} has pad, unknown, begin, end = {ids}, not "
            f"{(PAD_ID, UNKNOWN_ID, BEGIN_ID, END_ID)}; learn the vocabulary with this program"
        )
    return processor


def count_words(
    scratch: Scratch,
    shard: Shard,
    rows_before: int,
    sample_pairs: int,
    pairs: int,
    has_spaces: tuple[bool, bool],
    line_every: int,
) -> tuple[Counter[str], Counter[str]]:
    """Counts the words of a shard, reading only its part of `sample_pairs` spread evenly over a corpus of `pairs`.

    What stands between the spaces of a side without spaces between words is counted apart, in the second result, and
    of each `line_every`-th sampled line only.
    """
    words: Counter[str] = Counter()
    unspaced: Counter[str] = Counter()
    shard = shard.on_this_node(scratch)
    for row, pair in enumerate(read_pairs(shard.source, shard.target), rows_before):
        sampled = (row + 1) * sample_pairs // pairs
        if row * sample_pairs // pairs != sampled:
            for line, is_spaced in zip(pair, has_spaces, strict=True):
                if is_spaced or sampled % line_every == 0:
                    (words if is_spaced else unspaced).update(line.replace("\t", " ").split(" "))
    del words[""], unspaced[""]
    return words, unspaced


def _count(context: Context, corpus: Corpus, at_most_pairs: int) -> list[tuple[str, int]]:
    """Counts the `KEPT_WORDS` most frequent words, most frequent first, then each character that is in none of them.

    The parts of `KEPT_LINES` lines of sides without spaces between words follow, each counted as often as if all
    sampled lines had been read.
    """
    shards, pairs = corpus.shards, corpus.pairs
    sample_pairs = min(pairs, at_most_pairs)
    line_every = -(-sample_pairs // KEPT_LINES)
    rows_before = accumulate((shard.pairs for shard in shards), initial=0)
    has_spaces = sides_with_word_spaces(context, corpus)
    calls = [
        (context.scratch, shard, before, sample_pairs, pairs, has_spaces, line_every)
        for shard, before in zip(shards, rows_before, strict=False)
    ]
    words: Counter[str] = Counter()
    unspaced: Counter[str] = Counter()
    characters: set[str] = set()
    done = 0
    for (_, shard, *_), (counted, of_lines) in zip(calls, context.map(count_words, calls), strict=True):
        words.update(counted)
        unspaced.update(of_lines)
        if len(words) > 3 * KEPT_WORDS or shard is shards[-1]:
            characters.update(*words)
            words = Counter(dict(sorted(words.items(), key=lambda item: (-item[1], item[0]))[:KEPT_WORDS]))
        done += shard.pairs
        context.progress(done, pairs, "pairs")
    words.update({part: number * line_every for part, number in unspaced.items()})
    rare = characters.difference(*words)
    return [*words.items(), *((character, 1) for character in sorted(rare))]


def _wrong_size(size: int, bound: str) -> UserError:
    return UserError(f"the training text {bound}, not {size}; set the vocabulary's size accordingly")
