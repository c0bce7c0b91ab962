"""pipeline.text.cleaning: dropped pairs, kept pairs and their counts."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.artifacts import Corpus
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.settings import CleaningSettings
from pipeline.text.aligned import blocks
from pipeline.text.cleaning import reason_to_drop, write_corpus
from tests.support.parallel_text import pairs_of, text_pairs
from tests.support.tiny_text import NOISE
from tests.support.unspaced_text import ENGLISH, TEXTS


def map_processes(function: Callable[..., Any], calls: Iterable[Sequence[Any]]) -> Iterable[Any]:
    """Like `map_here`, in two other processes."""
    with ProcessPoolExecutor(2) as pool:
        yield from pool.map(function, *zip(*calls, strict=True))


def clean(context: Context, pairs: list[tuple[str, str]], languages: Any = ("en", "de"), **settings: Any) -> Corpus:
    cleaning = CleaningSettings(**settings)
    return write_corpus(context, languages, blocks("all", pairs, cleaning.shard_pairs), cleaning)


@pytest.fixture
def europarl(parallel_text: Path) -> list[tuple[str, str]]:
    pairs = text_pairs(parallel_text, "europarl_sample/train", 120)
    return [(source, target) for source, target in pairs if source.strip() and target.strip()]


def test_bad_pairs_are_dropped_and_counted(here: Context, europarl: list[tuple[str, str]]) -> None:
    cleaned = clean(replace(here, map=map_processes), europarl[:20] + NOISE + europarl[20:], shard_pairs=4)
    assert pairs_of(cleaned) == [(source.strip(), target.strip()) for source, target in europarl]
    dropped = {"blank": 2, "too_long": 1, "ratio": 1, "invalid": 0}
    counts = {"read": len(europarl) + 4, "kept": len(europarl), "dropped": dropped}
    report = cleaned.load().report
    of_all = {**counts, "suspicious": report["suspicious"]}
    assert report == {**of_all, "normalised": 0, "collections": {"all": of_all}}
    assert {shard.pairs for shard in cleaned.shards} == {4}
    assert {path.suffix for path in cleaned.folder.glob("[!.]*")} == {".json", ".en", ".de"}


def test_separators_inside_training_lines_become_spaces(here: Context) -> None:
    """No other program can split the lines again. Lines changed within are counted."""
    cleaned = clean(here, [("a\u2028b\x85\tc\r", "Quoi\u00a0? \x0c\x1c oui\r"), ("x \r", "\ty"), ("ü", "u\u0308")])
    assert pairs_of(cleaned) == [("a b c", "Quoi\u00a0?   oui"), ("x", "y"), ("ü", "ü")]
    assert cleaned.read_json("corpus.json")["report"]["normalised"] == 3


@pytest.mark.parametrize(
    ("in_words", "source", "target", "reason"),
    [
        (True, "w " * 4, "w " * 4, None),
        (True, "w " * 5, "w " * 5, "too_long"),
        (True, "w", "w " * 2, None),
        (True, "w", "w " * 3, "ratio"),
        (True, "", "", "blank"),
        # a word allows five characters where no spaces separate words
        (False, "a b c d e f g h i j k l m n o p q r s t", "一二三四五六七八九十", None),
        (False, "a b c d e f g h i j k l m n o p q r s t u", "一二三四五六七八九十一", "too_long"),
        (False, "a b c d e f g h i j", "一二三四", "ratio"),
        (False, " ", "一", "blank"),
    ],
)
def test_limits_are_the_last_values_allowed(in_words: bool, source: str, target: str, reason: str | None) -> None:
    assert reason_to_drop(source, target, CleaningSettings(max_words=4, max_ratio=2), in_words=in_words) == reason


@pytest.mark.parametrize("drop", [(), ("duplicate",), ("copy", "numbers"), ("duplicate", "copy", "numbers")])
@pytest.mark.parametrize("shard_pairs", [2, 100])
def test_suspicious_pairs_are_counted_or_dropped(here: Context, drop: tuple[str, ...], shard_pairs: int) -> None:
    """The first of repeated pairs stays, in whatever shard. Digits of any script and grouping are the same numbers."""
    many = "9" * 5000
    sound = [("a", "b"), ("1,000.5 m", "1.000,5 m"), ("in ٠٥/12", "am 12.5"), (many, f"x{many}"), ("a", "c")]
    suspicious = [("a", "b", "duplicate"), ("DNA", "DNA", "copy"), ("7 or 8", "8", "numbers"), ("a", "b", "duplicate")]
    read = [*sound[:3], *suspicious, *sound[3:]]
    cleaned = clean(here, [(pair[0], pair[1]) for pair in read], shard_pairs=shard_pairs, drop=drop)
    kept = [pair[:2] for pair in read if not {*pair[2:]} & {*drop}]
    assert pairs_of(cleaned) == kept
    assert cleaned.pairs == cleaned.load().report["kept"] == len(kept)
    assert cleaned.load().report["suspicious"] == {"duplicate": 2, "copy": 1, "numbers": 1}
    assert sum(cleaned.load().report["dropped"].values()) == len(read) - len(kept)


def test_text_without_a_useful_pair_is_refused(here: Context) -> None:
    for pairs in ([], NOISE):
        with pytest.raises(UserError, match=rf"cleaning drops all {len(pairs)} training pairs \("):
            clean(here, pairs)


def test_text_shifted_by_a_line_shows_at_once(here: Context, caplog: pytest.LogCaptureFixture) -> None:
    sources, targets = ([f"{word} {i}" for i in range(1000)] for word in ("line", "Zeile"))
    shifted = clean(here, list(zip(sources[1:], targets, strict=False)))
    assert shifted.summary == "999 training pairs, suspicious: 999 numbers"
    warning = (
        "all: the sides' numbers differ in 100% of the 999 pairs with numbers; check that the lines are not shifted"
    )
    assert [record.getMessage() for record in caplog.records] == [warning]


@pytest.mark.parametrize("language", sorted(TEXTS))
def test_where_no_spaces_separate_words_characters_are_counted(here: Context, tmp_path: Path, language: str) -> None:
    """Sound pairs stay, in either direction. A pair with one side far too long for the other is dropped."""
    pairs = list(zip(ENGLISH, TEXTS[language], strict=True))
    there = [*pairs, (" ".join(ENGLISH), TEXTS[language][4]), (ENGLISH[4], "".join(TEXTS[language]))]
    for name, read in (("there", there), ("back", [(target, source) for source, target in there])):
        (tmp_path / name).mkdir()
        cleaned = clean(Context(tmp_path / name), read, ("en", language))
        assert pairs_of(cleaned) == read[: len(pairs)]
        dropped = {"blank": 0, "too_long": 0, "ratio": 2, "invalid": 0}
        assert cleaned.read_json("corpus.json")["report"]["dropped"] == dropped
