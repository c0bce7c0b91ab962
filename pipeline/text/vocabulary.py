"""Learns one vocabulary for both languages: byte-pair encoding with "a shared source-target vocabulary" (§5.1).

Text is normalised like all other (`pipeline.text.normalisation`), and runs of spaces become one. The most frequent
characters, making up `character_coverage` of the text, are pieces. Others are spelled as UTF-8 bytes with
`byte_fallback`, and unknown without.

Pieces are learned from word counts. For a side written without spaces (`pipeline.text.languages`), they are learned
from whole lines, spread evenly over the sample.

If the target side consists of linearised trees (§6.3), each of their symbols is a piece, including the space before it.
"""

import io
import re
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from model.config import BEGIN_ID, END_ID, PAD_ID, UNKNOWN_ID
from pipeline.artifacts import Corpus, Shard, Vocabulary
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.settings import VocabularySettings
from pipeline.text.formats import MAX_LINE_BYTES
from pipeline.text.languages import has_word_spaces
from pipeline.text.lines import read_pairs, write_lines
from pipeline.text.normalisation import sentencepiece_rules

TOO_LARGE = re.compile(r"Vocabulary size too high .*<= (\d+)")
TOO_SMALL = re.compile(r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)")
SPACE_SIGN = "\u2581"
"""Sentencepiece's sign for a space."""
KEPT_WORDS = 400_000
"""Number of most frequent words to learn from. Memory grows with it, and rarer words add no pieces."""
KEPT_LINES = 200_000
"""Maximum number of lines to learn from on a side written without spaces, at about 4 KB of memory each."""


def learn(context: Context, corpus: Corpus, settings: VocabularySettings) -> Vocabulary:
    """Learns exactly `settings.size` pieces from a corpus, deterministically.

    Words, or parts of lines between spaces, are counted with one call of `context.map` per shard. vocabulary.json is
    {"size", "sampled_pairs", "train_pairs", "words": those it was learned from}. Raises UserError, naming the nearest
    possible size, if the text does not allow this one.
    """
    words = _count(context, corpus, settings.sample_pairs)
    model, rules = io.BytesIO(), context.folder / "rules.tsv"
    write_lines(rules, sentencepiece_rules())
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
            normalization_rule_tsv=str(rules),
            max_sentence_length=MAX_LINE_BYTES,
            pad_id=PAD_ID,
            unk_id=UNKNOWN_ID,
            bos_id=BEGIN_ID,
            eos_id=END_ID,
            num_threads=1,  # stored in the model, so it must not depend on the machine
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
    proto = ModelProto.FromString(model.getvalue())
    proto.normalizer_spec.ClearField("normalization_rule_tsv")  # the rules' path, which depends on the run
    vocabulary.path.write_bytes(proto.SerializeToString(deterministic=True))
    rules.unlink()
    processor = load(vocabulary.path)
    if len(processor) != settings.size:
        raise _wrong_size(settings.size, f"allows {len(processor)} pieces")
    pieces = (f"{processor.id_to_piece(i)}\t{processor.get_score(i):g}" for i in range(len(processor)))
    write_lines(vocabulary.folder / "joint.vocab", pieces)
    sampled_pairs = min(corpus.pairs, settings.sample_pairs)
    record = {"size": settings.size, "sampled_pairs": sampled_pairs, "train_pairs": corpus.pairs, "words": len(words)}
    vocabulary.write_json("vocabulary.json", record)
    return vocabulary


def load(path: Path) -> SentencePieceProcessor:
    """Opens the model. Raises UserError if it is missing, damaged or has other special ids than model.config."""
    try:
        processor = SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError):
        raise UserError(f"{path} is missing or not a sentencepiece model; learn the vocabulary again") from None
    ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if ids != (PAD_ID, UNKNOWN_ID, BEGIN_ID, END_ID):
        raise UserError(
            f"{path} has pad, unknown, begin, end = {ids}, not "
            f"{(PAD_ID, UNKNOWN_ID, BEGIN_ID, END_ID)}; learn the vocabulary with this program"
        )
    return processor


def count_words(
    shard: Shard, rows_before: int, sample_pairs: int, pairs: int, has_spaces: tuple[bool, bool], line_every: int
) -> tuple[Counter[str], Counter[str]]:
    """Counts words in a shard's part of `sample_pairs` spread evenly over a corpus of `pairs`.

    On a side written without spaces, the parts between spaces are counted separately, in the second result, and only in
    each `line_every`-th sampled line.
    """
    words: Counter[str] = Counter()
    unspaced: Counter[str] = Counter()
    for row, pair in enumerate(read_pairs(shard.source, shard.target), rows_before):
        sampled = (row + 1) * sample_pairs // pairs
        if row * sample_pairs // pairs != sampled:
            for line, is_spaced in zip(pair, has_spaces, strict=True):
                if is_spaced or sampled % line_every == 0:
                    (words if is_spaced else unspaced).update(line.replace("\t", " ").split(" "))
    del words[""], unspaced[""]
    return words, unspaced


def _count(context: Context, corpus: Corpus, at_most_pairs: int) -> list[tuple[str, int]]:
    """Returns the counts of the `KEPT_WORDS` most frequent words, descending, then of each character in none of them.

    They are followed by the parts of `KEPT_LINES` lines of sides written without spaces, with counts extrapolated to
    all sampled lines.
    """
    shards, pairs = corpus.shards, corpus.pairs
    sample_pairs = min(pairs, at_most_pairs)
    line_every = -(-sample_pairs // KEPT_LINES)
    rows_before = accumulate((shard.pairs for shard in shards), initial=0)
    source, target = corpus.languages
    has_spaces = has_word_spaces(source), has_word_spaces(target)
    calls = [
        (shard, before, sample_pairs, pairs, has_spaces, line_every)
        for shard, before in zip(shards, rows_before, strict=False)
    ]
    words: Counter[str] = Counter()
    unspaced: Counter[str] = Counter()
    characters: set[str] = set()
    done = 0
    for (shard, *_), (counted, of_lines) in zip(calls, context.map(count_words, calls), strict=True):
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
