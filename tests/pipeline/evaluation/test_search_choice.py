"""pipeline.evaluation.search_choice: the best search on the dev set, and its translations."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from pipeline.artifacts import Checkpoint, Corpus
from pipeline.context import Context
from pipeline.evaluation import decoding, search_choice
from pipeline.evaluation.scoring import score_texts
from pipeline.evaluation.translation import Translator
from pipeline.settings import DecodingSettings
from pipeline.store.build import Build
from pipeline.text.lines import read_lines
from tests.support.parallel_text import set_of
from tests.support.ray_workers import workers_alive
from tests.support.tiny_checkpoint import SENTENCES, make_checkpoint


@dataclass
class AnotherNode(Build):
    def input(self, folder: Path) -> Path:
        return folder.parent / "here" / folder.name


def _search(beam_size: int, length_penalty: float) -> DecodingSettings:
    search = {"beam_size": beam_size, "length_penalty": length_penalty}
    return DecodingSettings(**search, dtype="float32", max_extra_tokens=5, workers=1)


def _model(folder: Path, corpus: Corpus) -> Checkpoint:
    """Returns a model with weights so large that outputs are long, varied and different for each beam size."""
    model = make_checkpoint(folder, corpus, pieces=100)
    weights = load_file(folder / "model.safetensors")
    large = {name: 5 * weight if weight.dim() > 1 else weight for name, weight in weights.items()}
    save_file(large, folder / "model.safetensors")
    return model


def _context(folder: Path, emit: Callable[[Any], None] = lambda event: None) -> Context:
    folder.mkdir()
    return Context(folder, emit, build=AnotherNode(folder))


@pytest.mark.usefixtures("ray_cluster")
def test_the_best_of_searches_made_one_by_one(corpus: Corpus, tmp_path: Path) -> None:
    """The references are the output of beam 2, the same for α 0.6 and 1, so beam 2 wins, with the smaller α unless the
    settings have the larger. The test set is decoded with the chosen search and the other settings."""
    here = _model(tmp_path / "here" / "model", corpus).folder
    sources = [sentence for sentence in SENTENCES if sentence.strip()]
    searches = [(2, 0.6), (2, 1.0), (3, 0.6)]
    written = [Translator(here, _search(*search)).translate(sources) for search in searches]
    assert written[0] == written[1] != written[2]
    text = set_of(tmp_path / "text", list(zip(sources, written[0], strict=True)), "test")
    model = Checkpoint(tmp_path / "model")

    workers: list[list[int]] = []
    context = _context(tmp_path / "one", lambda event: workers.append(workers_alive("DecodingWorker")))
    choice = search_choice.choose(context, model, text, _search(3, 0.6), [2], [1.0, 0.6])
    assert len(workers) == len(searches)
    assert len({*workers[0]} & {*workers[1]} & {*workers[2]}) == 1  # the same for all searches
    scores = choice.load().scores
    assert [(search.beam_size, search.length_penalty) for search in scores] == searches
    for search, lines in zip(scores, written, strict=True):
        expected = score_texts(lines, [written[0]], "de")
        assert (search.dev_paper_bleu, search.dev_sacrebleu) == (expected.paper_bleu, expected.sacrebleu)
    assert choice.load().settings == _search(2, 0.6)
    assert choice.summary == "beam 2, α 0.6: dev_paper_bleu 100.00"
    assert [path.name for path in choice.folder.iterdir()] == ["decoding_choice.json"]  # no translations

    other = search_choice.choose(_context(tmp_path / "other"), model, text, _search(2, 1.0), [2], [0.6])
    assert other.load().settings == _search(2, 1.0)

    settings = _search(3, 0.6).model_copy(update={"batch_tokens": 50})
    hypotheses = decoding.decode(_context(tmp_path / "decoded"), model, text, settings, other)
    assert list(read_lines(hypotheses.folder / "test.de")) == written[1]
    assert hypotheses.load().settings == _search(2, 1.0).model_copy(update={"batch_tokens": 50})
