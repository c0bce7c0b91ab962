"""pipeline.text.encoding: the files hold the text's ids, and `batch` returns them."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

from model.config import BEGIN_ID, END_ID, PAD_ID, UNKNOWN_ID
from pipeline.artifacts import Corpus, EncodedDataset, EvaluationSet, Vocabulary
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.settings import EncodingSettings, VocabularySettings
from pipeline.text.encoding import EncodedSplit, decode_ids, encode, id_lists, write_shard
from pipeline.text.lines import read_pairs
from pipeline.text.segmentation import encode_lines
from pipeline.text.vocabulary import learn, load
from tests.support.contexts import new_context
from tests.support.parallel_text import corpus_of, pairs_of, set_of, text_pairs
from tests.support.tiny_text import every_character


class Prepared(NamedTuple):
    corpus: Corpus
    dev: EvaluationSet
    vocabulary: Vocabulary
    dataset: EncodedDataset
    train: EncodedSplit


MAX_TOKENS = 30


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, parallel_text: Path) -> Prepared:
    """1,500 training pairs of Multi30k in three shards, 100 dev pairs with a blank line, encoded with 800 pieces."""
    folder = tmp_path_factory.mktemp("encoding")
    train, dev = text_pairs(parallel_text, "multi30k/train", 1500), text_pairs(parallel_text, "multi30k/val", 99)
    corpus = corpus_of(folder / "corpus", train, shard_pairs=600)
    dev_set = set_of(folder / "dev", [("", "日"), *dev])
    vocabulary = learn(new_context(folder / "vocabulary"), corpus, every_character(800))
    settings = EncodingSettings(max_tokens=MAX_TOKENS)
    dataset = encode(new_context(folder / "dataset"), corpus, dev_set, vocabulary, settings)
    return Prepared(corpus, dev_set, vocabulary, dataset, EncodedSplit.open(dataset, "train"))


def rows_of(split: EncodedSplit) -> list[tuple[list[int], ...]]:
    """Reads every row's ids with `batch`, one row at a time and so without padding."""
    return [tuple(side[0].tolist() for side in split.batch(np.array([row]))) for row in range(len(split))]


def expected(prepared: Prepared, split: str) -> list[tuple[list[int], ...]]:
    """Returns the ids of every pair of the text, taken directly from sentencepiece."""
    processor = load(prepared.vocabulary.path)
    pairs = pairs_of(prepared.corpus) if split == "train" else read_pairs(prepared.dev.source, prepared.dev.references)
    return [tuple([*processor.encode(side), END_ID] for side in pair) for pair in pairs]


def test_training_rows_are_the_short_pairs(prepared: Prepared) -> None:
    """Sides stay paired, no pair is lost or doubled, and pairs with a side over max_tokens are left out and counted."""
    short = [pair for pair in expected(prepared, "train") if max(map(len, pair)) <= MAX_TOKENS]
    assert 0 < len(short) < 1500
    assert sorted(rows_of(prepared.train)) == sorted(short)
    record = prepared.dataset.read_json("dataset.json")
    assert record["left_out"] == 1500 - len(short)
    assert sum(shard["pairs"] for shard in record["splits"]["train"]) == len(short)
    assert sum(shard["source_tokens"] for shard in record["splits"]["train"]) == sum(len(s) for s, _ in short)
    assert sum(shard["target_tokens"] for shard in record["splits"]["train"]) == sum(len(t) for _, t in short)
    assert record["vocabulary_size"] == 800
    assert record["languages"] == ["en", "de"]


def test_all_dev_rows_are_kept_in_order(prepared: Prepared) -> None:
    """Row i is line i, including overlong and blank lines. An unseen character is counted as unknown."""
    rows = expected(prepared, "dev")
    assert max(len(side) for pair in rows for side in pair) > MAX_TOKENS
    assert rows_of(EncodedSplit.open(prepared.dataset, "dev")) == rows
    unknown = sum(side.count(UNKNOWN_ID) for pair in rows for side in pair)
    assert unknown >= 1
    assert prepared.dataset.read_json("dataset.json")["splits"]["dev"][0]["unknown"] == unknown


@settings(max_examples=60)
@given(st.data())
def test_batch_is_plain_padding(prepared: Prepared, draw: st.DataObject) -> None:
    rows = draw.draw(st.lists(st.integers(0, len(prepared.train) - 1), max_size=20))
    singles = [prepared.train.batch(np.array([row])) for row in rows]
    lengths = prepared.train.source_lengths, prepared.train.target_lengths
    for i, side in enumerate(prepared.train.batch(np.array(rows, dtype=np.int64))):
        ids = [single[i][0].tolist() for single in singles]
        longest = max(map(len, ids), default=0)
        assert side.tolist() == [sentence + [PAD_ID] * (longest - len(sentence)) for sentence in ids]
        assert lengths[i][rows].tolist() == [len(sentence) for sentence in ids]


def test_buckets_without_a_pair_take_no_space(tmp_path: Path) -> None:
    """A file holds two bytes per id, four per offset, and little else."""
    side = id_lists(np.ones(5000, np.uint16), np.full(1000, 5))
    write_shard(tmp_path / "shard.arrow", side, side, 256)
    assert (tmp_path / "shard.arrow").stat().st_size < 2 * (2 * 5000 + 4 * 1001) + 2000
    with pytest.raises(UserError, match=r"a shard has 2147483648 token ids.* lower cleaning\.shard_pairs"):
        id_lists(np.zeros(0, np.uint16), np.array([2**30, 2**30]))  # 32-bit offsets would overflow


def test_damage_is_reported_in_one_line(prepared: Prepared, tmp_path: Path) -> None:
    dataset = EncodedDataset(tmp_path)
    (tmp_path / "dataset.json").write_text(json.dumps({"splits": {"train": [{"pairs": 3}]}}))
    with pytest.raises(UserError, match="no split 'test'; it has train"):
        EncodedSplit.open(dataset, "test")
    with pytest.raises(UserError, match=r"00000.arrow is missing"):
        EncodedSplit.open(dataset, "train")
    (tmp_path / "train").mkdir()
    whole = (prepared.dataset.folder / "train" / "00000.arrow").read_bytes()
    for content, message in ((whole[:-100], "is damaged"), (b"", "is damaged"), (whole, "does not hold 3 pairs")):
        (tmp_path / "train" / "00000.arrow").write_bytes(content)
        with pytest.raises(UserError, match=message):
            EncodedSplit.open(dataset, "train")


def test_ids_decode_up_to_the_end_mark(prepared: Prepared) -> None:
    processor = load(prepared.vocabulary.path)
    lines = ["Two young men are outside.", "Zwei Männer stehen am Herd."]
    ids = encode_lines(processor, lines)
    assert all(sentence[-1] == END_ID for sentence in ids)
    assert decode_ids(processor, ids) == lines
    assert decode_ids(processor, [[BEGIN_ID, *sentence, 77, PAD_ID] for sentence in ids]) == lines
    assert decode_ids(processor, [ids[0][:-1], [END_ID], []]) == [lines[0], "", ""]


@pytest.fixture(scope="module")
def with_bytes(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> SentencePieceProcessor:
    return load(learn(Context(tmp_path_factory.mktemp("bytes")), prepared.corpus, VocabularySettings(size=600)).path)


@given(st.lists(st.lists(st.integers(0, 599)), max_size=4))
@example([[4 + 0xE6], [4 + 0x0A, 4 + 0xFF, 4 + 0x0D], [4 + 0xED, 4 + 0xA0, 4 + 0x80], [4 + 0xE6, 300, 4 + 0x97]])
def test_any_ids_are_lines_of_text(with_bytes: SentencePieceProcessor, sentences: list[list[int]]) -> None:
    """A search may emit bytes in any order. Decoding always yields one line of valid UTF-8 per sentence."""
    lines = decode_ids(with_bytes, sentences)
    assert len(lines) == len(sentences)
    for line in lines:
        assert "\n" not in line
        assert line.encode("utf-8").decode("utf-8") == line
