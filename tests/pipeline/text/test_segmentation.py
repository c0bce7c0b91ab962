"""pipeline.text.segmentation: word by word, the ids equal sentencepiece's for whole lines."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.context import Context
from pipeline.settings import VocabularySettings
from pipeline.text.segmentation import Segmenter, encode_lines, segmenter
from pipeline.text.vocabulary import learn, load
from tests.support.parallel_text import corpus_of, text_pairs
from tests.support.tiny_text import every_character


@pytest.fixture(scope="module")
def pairs(parallel_text: Path) -> list[tuple[str, str]]:
    """Pairs of Europarl, with no-break spaces, quotes and long words."""
    return text_pairs(parallel_text, "europarl_sample/train", 1000)


@pytest.fixture(scope="module", params=[False, True], ids=["characters", "bytes"])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> Path:
    """A vocabulary of that text, without and with byte fallback."""
    folder = tmp_path_factory.mktemp("vocabulary")
    corpus = corpus_of(folder / "corpus", pairs)
    settings = VocabularySettings(size=2000) if request.param else every_character(2000)
    return learn(Context(folder), corpus, settings).path


def check(segment: Segmenter, model: Path, lines: list[str]) -> None:
    ids, lengths = segment(lines)
    expected = encode_lines(load(model), lines)
    assert lengths.tolist() == [len(row) for row in expected]
    assert ids.tolist() == [i for row in expected for i in row]


ODD = st.sampled_from(
    ["\u2581", " ", "  ", "\t", "\r", "\u00a0", "\u2028", "\ufeff", "</s>", "<s>", "☃", "\0", "the", "e"]
)
LINE = st.lists(st.one_of(ODD, st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])))).map("".join)


@given(st.lists(LINE, min_size=1, max_size=8))
def test_any_text(model: Path, lines: list[str]) -> None:
    check(segmenter(model), model, lines)
