"""pipeline.text.vocabulary: exact size, fixed ids, reproducible bytes, and lossless text."""

import io
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from model.config import BEGIN_ID, END_ID, PAD_ID, UNKNOWN_ID
from pipeline.artifacts import Corpus, Vocabulary
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.settings import VocabularySettings
from pipeline.text import vocabulary
from pipeline.text.lines import read_lines
from pipeline.text.vocabulary import learn, load
from tests.support.contexts import new_context
from tests.support.parallel_text import corpus_of, pairs_of, text_pairs
from tests.support.unspaced_text import CHINESE, ENGLISH, TEXTS

IDS = (PAD_ID, UNKNOWN_ID, BEGIN_ID, END_ID)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, parallel_text: Path) -> Corpus:
    pairs = text_pairs(parallel_text, "multi30k/train", 2000)
    return corpus_of(tmp_path_factory.mktemp("corpus"), pairs, shard_pairs=800)


def learn_in(folder: Path, corpus: Corpus, **settings: Any) -> Vocabulary:
    """Calls `learn` with a new folder. By default, each character is a piece, and no byte is."""
    settings = {"character_coverage": 1, "byte_fallback": False} | settings
    return learn(new_context(folder), corpus, VocabularySettings(**settings))


def words_of(corpus: Corpus) -> Counter[str]:
    sides = [side for shard in corpus.shards for side in (shard.source, shard.target)]
    return Counter(word for side in sides for line in read_lines(side) for word in line.split(" ") if word)


def test_the_same_corpus_gives_the_same_bytes(tmp_path: Path, corpus: Corpus) -> None:
    """The model depends neither on chance nor on its path, and has the requested size."""
    first, second = (learn_in(tmp_path / name, corpus, size=1000) for name in ("a", "b"))
    assert first.path.read_bytes() == second.path.read_bytes()
    processor = load(first.path)
    assert len(processor) == 1000
    assert len(list(read_lines(first.folder / "joint.vocab"))) == 1000
    sides = [side for shard in corpus.shards for side in (shard.source, shard.target)]
    words = {word for side in sides for line in read_lines(side) for word in line.split()}
    counts = {"size": 1000, "sampled_pairs": 2000, "train_pairs": 2000, "words": len(words)}
    assert first.read_json("vocabulary.json") == counts
    assert [processor.id_to_piece(i) for i in IDS] == ["<pad>", "<unk>", "<s>", "</s>"]


@pytest.mark.parametrize(("language", "word"), [("de", "Hund"), ("zh", "正在"), ("ja", "です"), ("th", "กำลัง")])
def test_pieces_are_those_of_whole_lines(tmp_path: Path, corpus: Corpus, language: str, word: str) -> None:
    """Counting words first, or lines of a side without spaces, changes nothing: sentencepiece learns the same pieces
    from the lines themselves."""
    if language != "de":
        pairs = zip(ENGLISH, TEXTS[language], strict=True)
        corpus = corpus_of(tmp_path / "corpus", pairs, ("en", language), shard_pairs=10)
    # sentencepiece skips lines with tabs
    lines = [line for pair in pairs_of(corpus) for line in pair if "\t" not in line]
    size = 1500 if language == "de" else 500
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=size,
        character_coverage=1.0,
        normalization_rule_name="identity",
        num_threads=1,
        minloglevel=2,
        **{f"{name}_id": number for name, number in zip(("pad", "unk", "bos", "eos"), IDS, strict=True)},
    )
    of_lines = SentencePieceProcessor(model_proto=model.getvalue())
    ours = load(learn_in(tmp_path / "v", corpus, size=size).path)
    pieces = [ours.id_to_piece(i) for i in range(size)]
    theirs = [of_lines.id_to_piece(i) for i in range(size)]
    assert pieces == theirs if language == "de" else set(pieces) == set(theirs)
    assert all(ours.decode(ours.encode(line)) == re.sub(" +", " ", line).strip() for line in lines)
    assert any(word in piece for piece in pieces)


def test_impossible_sizes_name_the_nearest_possible(tmp_path: Path, corpus: Corpus) -> None:
    with pytest.raises(UserError, match=r"allows at most \d+ pieces, not 90000") as caught:
        learn_in(tmp_path / "large", corpus, size=90_000)
    largest = int(str(caught.value).split("at most ")[1].split()[0])
    with pytest.raises(UserError, match=r"needs at least \d+ pieces, one for each character, not 8") as caught:
        learn_in(tmp_path / "small", corpus, size=8)
    smallest = int(str(caught.value).split("at least ")[1].split()[0])
    for size, wrong in ((largest, largest + 1), (smallest, smallest - 1)):
        assert len(load(learn_in(tmp_path / f"{size}", corpus, size=size).path)) == size
        with pytest.raises(UserError, match=r"training text (allows|needs)"):
            learn_in(tmp_path / f"{wrong}", corpus, size=wrong)


def test_coverage_decides_which_characters_are_pieces(tmp_path: Path, corpus: Corpus) -> None:
    counts: Counter[str] = Counter()
    for word, number in words_of(corpus).items():
        counts.update({character: number * word.count(character) for character in set(word)})
        counts["▁"] += number
    total, reached, wanted = sum(counts.values()), 0, set()
    for character, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if reached < 0.999 * total:
            wanted.add(character)
        reached += number
    processor = load(learn_in(tmp_path / "v", corpus, size=600, character_coverage=0.999).path)
    assert {piece for i in range(600) if len(piece := processor.id_to_piece(i)) == 1} == wanted
    assert len(wanted) < len(counts)
    assert UNKNOWN_ID in processor.encode("".join(set(counts) - wanted))


def test_bytes_spell_what_is_no_piece(tmp_path: Path, corpus: Corpus) -> None:
    """All 256 bytes follow the special ids, nothing is unknown, and lines of any script survive a round trip."""
    processor = load(learn_in(tmp_path / "v", corpus, size=600, character_coverage=0.999, byte_fallback=True).path)
    assert [i for i in range(600) if processor.is_byte(i)] == list(range(4, 260))
    assert [processor.id_to_piece(i) for i in (*IDS, 4, 259)] == ["<pad>", "<unk>", "<s>", "</s>", "<0x00>", "<0xFF>"]
    for line in (*words_of(corpus), "日本 𝔘 ☃ <0xE6> ĳ", "é x"):
        ids = processor.encode(line)
        assert UNKNOWN_ID not in ids
        assert processor.decode(ids) == line
    assert sum(map(processor.is_byte, processor.encode("☃"))) == 3
    with pytest.raises(UserError, match=r"needs at least \d+ pieces, one for each character and byte, not 200"):
        learn_in(tmp_path / "small", corpus, size=200, byte_fallback=True)


@pytest.mark.parametrize("byte_fallback", [True, False])
def test_symbols_of_trees_are_pieces(tmp_path: Path, byte_fallback: bool) -> None:
    """Each symbol is one piece and survives a round trip, as do words that look like symbols or begin with one."""
    symbols = ["(NP", "(S", "(SBAR", ")NP", ")S", ")SBAR", "XX"]
    pairs = [("XX dogs XXL -LRB- (Sx", "(S (NP XX XX )NP (SBAR XX )SBAR XX XX )S")] * 9
    corpus = corpus_of(tmp_path / "corpus", pairs, ("en", "trees"), symbols=symbols)
    with pytest.raises(UserError, match=r"needs at least \d+ pieces") as caught:
        learn_in(tmp_path / "small", corpus, size=12, byte_fallback=byte_fallback)
    smallest = int(str(caught.value).split("at least ")[1].split()[0])
    processor = load(learn_in(tmp_path / "v", corpus, size=smallest + 3, byte_fallback=byte_fallback).path)
    line = "(S (NP XX XX )NP (SBAR (S XX )S )SBAR )S"
    assert processor.encode(line, out_type=str) == ["▁" + symbol for symbol in line.split()]
    assert processor.decode(processor.encode(line)) == line
    for symbol in symbols:
        assert processor.decode(processor.encode(symbol)) == symbol
        assert len(processor.encode(symbol)) == 1
    pieces = [processor.id_to_piece(i) for i in range(len(processor)) if not processor.is_byte(i)]
    assert [piece for piece in pieces if "(" in piece or ")" in piece or "XX" in piece] == ["▁" + s for s in symbols]
    words = ["XX dogs", "(S", "(Sx", "dogs (SBAR -LRB-", "XXL"]
    for text in words + (["aXX", "(SX", "a(S", "X", "(", "(VP )VP (NPX"] if byte_fallback else []):
        assert processor.decode(processor.encode(text)) == text


def test_lines_are_sampled_evenly_and_keep_their_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A side without word spaces is sampled, every third line with weight 3. The other side is read completely."""
    monkeypatch.setattr(vocabulary, "KEPT_LINES", 8)
    corpus = corpus_of(tmp_path / "corpus", list(zip(CHINESE, ENGLISH, strict=True)), ("zh", "en"), shard_pairs=10)
    learned = Counter(dict(vocabulary._count(Context(tmp_path), corpus, 1000)))
    assert {part: number for part, number in learned.items() if part in CHINESE} == dict.fromkeys(CHINESE[2::3], 3)
    words = Counter(word for line in ENGLISH for word in line.split())
    assert {word: learned[word] for word in words} == words
