"""One vocabulary for both languages: byte-pair encoding, "a shared source-target vocabulary" (§5.1).

Text is not normalised (rule `identity`): translations are scored against raw references, so what the model reads and
writes must be the raw characters. Only runs of spaces become one. Characters that training never showed are unknown;
`pipeline.encoding` counts them.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from model.config import BEGIN_ID, END_ID, PAD_ID, UNKNOWN_ID
from pipeline.artifacts import Context, Corpus, Vocabulary
from pipeline.errors import UserError
from pipeline.lines import MAX_LINE_BYTES, read_pairs, write_lines
from pipeline.settings import VocabularySettings

TOO_LARGE = re.compile(r"Vocabulary size too high .*<= (\d+)")
TOO_SMALL = re.compile(r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)")
PROGRESS_PAIRS = 100_000


def learn(context: Context, corpus: Corpus, settings: VocabularySettings) -> Vocabulary:
    """Trains exactly `settings.size` pieces on the training split; the same corpus gives the same bytes.

    Raises UserError where the text allows no vocabulary of that size, naming the nearest size it does allow.
    """
    model = io.BytesIO()
    broken: list[UserError] = []

    def lines() -> Iterator[str]:
        try:
            yield from _sample(context, corpus, settings.sample_pairs)
        except UserError as error:  # sentencepiece would make a RuntimeError of it
            broken.append(error)
            raise

    try:
        SentencePieceTrainer.train(
            sentence_iterator=lines(),
            model_writer=model,
            model_type="bpe",
            vocab_size=settings.size,
            character_coverage=1.0,
            normalization_rule_name="identity",
            max_sentence_length=MAX_LINE_BYTES,
            pad_id=PAD_ID,
            unk_id=UNKNOWN_ID,
            bos_id=BEGIN_ID,
            eos_id=END_ID,
            num_threads=1,  # is written into the model, so it must not follow the machine
            minloglevel=2,
        )
    except RuntimeError as error:
        if broken:
            raise broken[0] from None
        if largest := TOO_LARGE.search(str(error)):
            raise _wrong_size(settings.size, f"at most {largest[1]}") from None
        if smallest := TOO_SMALL.search(str(error)):
            raise _wrong_size(settings.size, f"at least {smallest[1]}, one for each character,") from None
        raise
    vocabulary = Vocabulary(context.folder)
    vocabulary.path.write_bytes(model.getvalue())
    processor = load(vocabulary.path)
    if len(processor) != settings.size:
        raise _wrong_size(settings.size, f"{len(processor)}")
    pieces = (f"{processor.id_to_piece(i)}\t{processor.get_score(i):g}" for i in range(len(processor)))
    write_lines(vocabulary.folder / "joint.vocab", pieces)
    return vocabulary


def load(path: Path) -> SentencePieceProcessor:
    """Opens the model. Raises UserError where it is missing, damaged or has other special ids than model.config."""
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


def _sample(context: Context, corpus: Corpus, at_most_pairs: int) -> Iterator[str]:
    """Both sides of all training pairs, or of `at_most_pairs` spread evenly over them."""
    shards = corpus.shards("train")
    total = sum(shard.pairs for shard in shards)
    wanted = min(total, at_most_pairs)
    i = 0
    for shard in shards:
        for pair in read_pairs(shard.source, shard.target):
            if i * wanted // total != (i + 1) * wanted // total:
                yield from pair
            i += 1
            if i % PROGRESS_PAIRS == 0 or i == total:
                context.progress(i, total, "pairs")


def _wrong_size(size: int, allowed: str) -> UserError:
    return UserError(f"the training text allows {allowed} pieces, not {size}; set the vocabulary's size accordingly")
