"""pipeline.text.cleaning: what is dropped, what is kept and how it is counted."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import UserError
from pipeline.settings import CleaningSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus
from pipeline.text.aligned import write_shards
from pipeline.text.cleaning import clean, reason_to_drop
from pipeline.text.lines import read_lines, read_pairs

BAD = [
    ("", "leer"),
    ("blank", " \u2028\t"),
    ("word " * 251, "Wort " * 251),
    ("one", "eins zwei drei vier fünf sechs sieben acht neun zehn"),
]


def map_processes(function: Callable[..., Any], calls: Iterable[Sequence[Any]]) -> Iterable[Any]:
    """Like `map_here`, in two other processes."""
    with ProcessPoolExecutor(2) as pool:
        yield from pool.map(function, *zip(*calls, strict=True))


def corpus_of(folder: Path, train: list[tuple[str, str]], other: list[tuple[str, str]], shard_pairs: int) -> Corpus:
    """Makes a corpus of some pairs."""
    corpus, languages = Corpus(folder), ("en", "de")
    splits = {"train": write_shards(corpus, "train", languages, train, shard_pairs)}
    splits |= {split: write_shards(corpus, split, languages, other, shard_pairs) for split in ("dev", "news")}
    corpus.describe(languages, splits, {})
    return corpus


def pairs_of(corpus: Corpus, split: str) -> list[tuple[str, str]]:
    """Reads all pairs of a split."""
    return [pair for shard in corpus.shards(split) for pair in read_pairs(shard.source, shard.target)]


@pytest.fixture
def europarl(parallel_text: Path) -> list[tuple[str, str]]:
    """120 pairs."""
    sides = [read_lines(parallel_text / "europarl_sample" / f"train.{language}.gz") for language in ("en", "de")]
    pairs = [pair for _, *pair in zip(range(120), *sides, strict=False)]
    return [(source, target) for source, target in pairs if source.strip() and target.strip()]


def test_bad_pairs_are_dropped_and_counted(tmp_path: Path, europarl: list[tuple[str, str]]) -> None:
    """Exactly the four bad pairs added to real text are dropped, where other processes clean the shards."""
    (tmp_path / "stage").mkdir()
    corpus = corpus_of(tmp_path / "corpus", europarl[:30] + BAD + europarl[30:], europarl[:5], shard_pairs=50)
    cleaned = clean(Context(tmp_path / "stage", map=map_processes), corpus, CleaningSettings(shard_pairs=20))
    assert pairs_of(cleaned, "train") == [(source.strip(), target.strip()) for source, target in europarl]
    assert cleaned.read_json("corpus.json")["report"] == {
        "read": len(europarl) + 4,
        "kept": len(europarl),
        "dropped": {"blank": 2, "too_long": 1, "ratio": 1},
        "carriage_returns": 0,
        "collections": {
            "all": {
                "read": len(europarl) + 4,
                "kept": len(europarl),
                "dropped": {"blank": 2, "too_long": 1, "ratio": 1},
            }
        },
    }
    assert max(shard.pairs for shard in cleaned.shards("train")) == 20
    assert sorted(path.name for path in cleaned.folder.iterdir()) == ["corpus.json", "dev", "news", "train"]


def test_collections_are_counted_apart_and_kept(tmp_path: Path, europarl: list[tuple[str, str]]) -> None:
    """Each shard keeps its collection, a collection that loses all pairs is still counted, progress is in pairs."""
    (tmp_path / "stage").mkdir()
    corpus, languages, events = Corpus(tmp_path / "corpus"), ("en", "de"), []
    pairs = [*BAD[2:], *europarl[:28], *BAD[:1], *europarl[28:57], *BAD]
    sizes = write_shards(corpus, "train", languages, pairs, 30)
    corpus.describe(languages, {"train": sizes}, {}, ["news", "web", "noise"])
    cleaned = clean(Context(tmp_path / "stage", events.append), corpus, CleaningSettings(shard_pairs=20))
    assert cleaned.read_json("corpus.json")["report"]["collections"] == {
        "news": {"read": 30, "kept": 28, "dropped": {"blank": 0, "too_long": 1, "ratio": 1}},
        "web": {"read": 30, "kept": 29, "dropped": {"blank": 1, "too_long": 0, "ratio": 0}},
        "noise": {"read": 4, "kept": 0, "dropped": {"blank": 2, "too_long": 1, "ratio": 1}},
    }
    kept = [(shard.pairs, shard.collection) for shard in cleaned.shards("train")]
    assert kept == [(20, "news"), (8, "news"), (20, "web"), (9, "web")]
    assert events == [{"done": done, "total": 64, "unit": "pairs"} for done in (30, 60, 64)]


def test_dev_and_test_keep_every_line(tmp_path: Path) -> None:
    """Blank, overlong and lopsided pairs stay byte for byte, except for Windows line ends."""
    (tmp_path / "stage").mkdir()
    corpus = corpus_of(tmp_path / "corpus", [("a", "b")], [*BAD, (" x\u2028y\r", "z\r")], shard_pairs=3)
    cleaned = clean(Context(tmp_path / "stage"), corpus, CleaningSettings())
    for split in ("dev", "news"):
        assert pairs_of(cleaned, split) == [*BAD, (" x\u2028y", "z")]
    assert cleaned.read_json("corpus.json")["report"]["carriage_returns"] == 4


def test_separators_inside_training_lines_become_spaces(tmp_path: Path) -> None:
    """No other program can split the lines again; the French no-break space stays."""
    (tmp_path / "stage").mkdir()
    corpus = corpus_of(tmp_path / "corpus", [("a\u2028b\x85\tc\r", "Quoi\u00a0? \x0c\x1c oui\r")], [("a", "b")], 5)
    cleaned = clean(Context(tmp_path / "stage"), corpus, CleaningSettings())
    assert pairs_of(cleaned, "train") == [("a b c", "Quoi\u00a0?   oui")]
    assert cleaned.read_json("corpus.json")["report"]["carriage_returns"] == 2


@pytest.mark.parametrize(
    ("source_words", "target_words", "reason"),
    [
        (4, 4, None),
        (5, 5, "too_long"),
        (1, 2, None),
        (1, 3, "ratio"),
        (0, 0, "blank"),
    ],
)
def test_limits_are_the_last_values_allowed(source_words: int, target_words: int, reason: str | None) -> None:
    """max_words 4 keeps 4 words and max_ratio 2 keeps 1 to 2, on either side."""
    settings = CleaningSettings(max_words=4, max_ratio=2)
    assert reason_to_drop("w " * source_words, "w " * target_words, settings) == reason


def test_nothing_left_is_a_user_error(tmp_path: Path) -> None:
    """The error says how many pairs were dropped for each reason."""
    (tmp_path / "stage").mkdir()
    corpus = corpus_of(tmp_path / "corpus", BAD, [("a", "b")], shard_pairs=3)
    with pytest.raises(UserError, match=r"drops all 4 training pairs \(2 blank, 1 too_long, 1 ratio"):
        clean(Context(tmp_path / "stage"), corpus, CleaningSettings())
