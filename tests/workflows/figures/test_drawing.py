from pathlib import Path

import pytest

from pipeline.artifacts import Checkpoint
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.settings import DecodingSettings
from tests.workflows.figures.conftest import SENTENCES
from workflows.figures.drawing import DrawnFigure, FigureSettings, draw_figures
from workflows.figures.trained import PRINTED_FIGURES

PAPERS = tuple(sentence for sentence, _ in PRINTED_FIGURES.values())
Texts = tuple[str, ...]


def drawn(checkpoint: Checkpoint, folder: Path, sentences: Texts, words: Texts = ()) -> tuple[DrawnFigure, ...]:
    decoding = DecodingSettings(dtype="float32", beam_size=1, max_extra_tokens=6)
    settings = FigureSettings(name="m", sentences=sentences, words=words, decoding=decoding)
    return draw_figures(Context(folder), checkpoint, settings).load().figures


@pytest.mark.parametrize(
    ("sentences", "words", "expected"),
    [
        (SENTENCES, ("sees", "lamp"), [(SENTENCES[1], "sees"), (SENTENCES[0], "lamp"), (SENTENCES[0], None)]),
        (SENTENCES, ("Old",), [(SENTENCES[0], "old"), (SENTENCES[0], "old"), (SENTENCES[0], None)]),
        (PAPERS, (), [(PAPERS[0], "making"), (PAPERS[1], "its"), (PAPERS[1], None)]),
    ],
)
def test_words(
    checkpoint: Checkpoint, tmp_path: Path, sentences: Texts, words: Texts, expected: list[tuple[str, str | None]]
) -> None:
    """The first word is for Figure 3, the last for Figure 4, in a sentence that has it. Captions state the source."""
    figures = drawn(checkpoint, tmp_path, sentences, words)
    assert [(figure.sentence, figure.word) for figure in figures] == expected
    for figure in figures[:2]:
        assert (": chosen." if words else ": the word is the paper's.") in figure.caption


def test_a_word_that_no_sentence_has_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^Figure 4: --word cat: there is no such word in “{SENTENCES[1]}”$"):
        drawn(checkpoint, tmp_path, SENTENCES, ("lamp", "cat"))
