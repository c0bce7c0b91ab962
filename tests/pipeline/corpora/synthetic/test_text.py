"""pipeline.corpora.synthetic.text: a seed always gives the same bytes, and the text has the shape of real text."""

from collections import Counter
from itertools import islice
from pathlib import Path
from statistics import fmean

import pytest

from pipeline.corpora.synthetic.text import LANGUAGES, NOISE, spell, write_text
from pipeline.settings import CleaningSettings
from pipeline.text.cleaning import SEPARATORS, reason_to_drop
from pipeline.text.lines import read_lines, read_pairs

PAIRS = 20_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Both sides of a generated text."""
    folder = tmp_path_factory.mktemp("text")
    source, target = folder / "train.en", folder / "train.de"
    assert write_text(source, target, PAIRS, seed=1) == PAIRS
    return source, target


def test_the_seed_decides_the_bytes(tmp_path: Path) -> None:
    """The same seed gives the same files, and another seed gives others."""
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_text(tmp_path / f"{name}.en", tmp_path / f"{name}.de", 300, seed)
    for language in ("en", "de"):
        first, again, other = ((tmp_path / f"{name}.{language}").read_bytes() for name in "abc")
        assert first == again != other


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_words_differ_and_rare_ones_are_longer(language: object) -> None:
    """No two ranks of one length share a spelling, and length grows with rank."""
    common, rare = ([spell(rank, language) for rank in ranks] for ranks in (range(1, 110), range(10_000, 40_000)))
    assert len(set(map(str.lower, rare))) > 0.99 * len(rare)
    assert fmean(map(len, common)) + 2 < fmean(map(len, rare)) < 15


def test_noise_has_its_shares(files: tuple[Path, Path]) -> None:
    """Cleaning finds the noise that was added: blank, overlong and misaligned pairs, carriage returns, separators."""
    found: Counter[str] = Counter()
    for source, target in read_pairs(*files):
        reason = reason_to_drop(source, target, CleaningSettings())
        found["misaligned" if reason == "ratio" else "overlong" if reason == "too_long" else str(reason)] += 1
        found["return"] += source.endswith("\r")
        found["separator"] += bool(SEPARATORS.search(source.rstrip("\r")))
    for kind in ("blank", "overlong", "return", "separator"):
        assert 0.4 * NOISE[kind] < found[kind] / PAIRS < 2 * NOISE[kind], kind
    assert found["misaligned"] > 0.4 * NOISE["misaligned"] * PAIRS


def test_shape_is_that_of_europarl(files: tuple[Path, Path], data: Path) -> None:
    """Compared with as many real lines, characters and words are within a tenth, and more words are distinct."""
    for ours, language in zip(files, ("en", "de"), strict=True):
        real = list(islice(read_lines(data / "europarl_sample" / f"train.{language}.gz"), PAIRS))
        drawn = list(islice(read_lines(ours), len(real)))
        assert sum(map(len, drawn)) / sum(map(len, real)) == pytest.approx(1, abs=0.1)
        real_words, drawn_words = ([word for line in lines for word in line.split()] for lines in (real, drawn))
        assert len(drawn_words) / len(real_words) == pytest.approx(1, abs=0.1)
        assert 1 < len(set(drawn_words)) / len(set(real_words)) < 1.7
