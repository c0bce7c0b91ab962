"""pipeline.evaluation.dev_scores: every kept checkpoint is scored by itself."""

import shutil
from pathlib import Path

import pytest

from pipeline.evaluation import averaging, decoding, dev_scores, scoring
from pipeline.settings import AveragingSettings, DecodingSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus, EncodedDataset, TrainingRun
from tests.support.parallel_text import corpus_of
from tests.support.tiny_figures import TRAINING

SETTINGS = DecodingSettings(max_extra_tokens=5, workers=1)
LINES = ["Two dogs run .", "A man reads .", "The house is old ."]


@pytest.fixture
def run(one_worker: Path, dataset: EncodedDataset, tmp_path: Path) -> TrainingRun:
    """A copy of a training that kept updates 6 and 9."""
    run = TrainingRun(shutil.copytree(one_worker, tmp_path / "run"))
    run.write(TRAINING.model_copy(update={"checkpoints": (6, 9)}))
    shutil.copyfile(dataset.folder / "joint.model", run.folder / "joint.model")
    return run


@pytest.fixture
def text(tmp_path: Path) -> Corpus:
    """A dev set of three sentences."""
    return corpus_of(tmp_path / "text", {"dev": [(line, line) for line in LINES]})


def _folder(path: Path) -> Context:
    path.mkdir()
    return Context(path)


@pytest.mark.usefixtures("ray_cluster")
def test_every_kept_checkpoint_is_scored(run: TrainingRun, text: Corpus, tmp_path: Path) -> None:
    """Both updates have scores, the last those of its checkpoint decoded and scored by the stages themselves."""
    events: list[dict[str, object]] = []
    out = tmp_path / "out"
    out.mkdir()
    measured = dev_scores.measure(Context(out, events.append), run, text, SETTINGS)
    series = measured.load().series
    assert {name: list(scores) for name, scores in series.items()} == {
        "dev_paper_bleu": [6, 9],
        "dev_sacrebleu": [6, 9],
    }
    last = averaging.average(_folder(tmp_path / "last"), run, AveragingSettings(last=1))
    hypotheses = decoding.decode(_folder(tmp_path / "hypotheses"), last, text, SETTINGS, ["dev"])
    scores = scoring.score(_folder(tmp_path / "scores"), hypotheses, text, ["dev"]).load().test_sets["dev"]
    assert (series["dev_paper_bleu"][9], series["dev_sacrebleu"][9]) == (scores.paper_bleu, scores.sacrebleu)
    assert [path.name for path in out.iterdir()] == ["dev_scores.json"]  # neither weights nor translations
    assert events[-1] == {"done": 2, "total": 2, "unit": "checkpoints"}
    assert "after 9" in measured.summary
