"""pipeline.evaluation.dev_scores: every kept checkpoint is scored individually."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pipeline.artifacts import EvaluationSet, TrainingRun
from pipeline.errors import LockLostError
from pipeline.evaluation import averaging, decoding, dev_scores, scoring
from pipeline.settings import AveragingSettings, DecodingSettings
from pipeline.store.build import Build
from tests.support.contexts import new_context
from tests.support.parallel_text import set_of
from tests.support.ray_workers import workers_alive
from tests.support.tiny_records import TRAINING

SETTINGS = DecodingSettings(max_extra_tokens=5, workers=1)
LINES = ["Two dogs run .", "A man reads .", "The house is old ."]


@pytest.fixture
def text(tmp_path: Path) -> EvaluationSet:
    return set_of(tmp_path / "text", [(line, line) for line in LINES])


@pytest.fixture
def run(finished_run: TrainingRun) -> TrainingRun:
    return finished_run.write(TRAINING.model_copy(update={"checkpoints": (6, 9)}))


@pytest.mark.usefixtures("ray_cluster")
def test_every_kept_checkpoint_is_scored(run: TrainingRun, text: EvaluationSet, tmp_path: Path) -> None:
    events: list[dict[str, object]] = []
    workers: list[list[int]] = []

    def emit(event: dict[str, object]) -> None:
        events.append(event)
        workers.append(workers_alive("DecodingWorker"))

    measured = dev_scores.measure(new_context(tmp_path / "out", emit), run, text, SETTINGS)
    series = measured.load().series
    assert [(name, *scores) for name, scores in series.items()] == [("dev_paper_bleu", 6, 9), ("dev_sacrebleu", 6, 9)]
    last = averaging.average(new_context(tmp_path / "last"), run, AveragingSettings(last=1))
    hypotheses = decoding.decode(new_context(tmp_path / "hypotheses"), last, text, SETTINGS)
    scores = scoring.score(new_context(tmp_path / "scores"), hypotheses, text).load()
    assert (series["dev_paper_bleu"][9], series["dev_sacrebleu"][9]) == (scores.paper_bleu, scores.sacrebleu)
    assert [path.name for path in measured.folder.iterdir()] == ["dev_scores.json"]  # neither weights nor translations
    assert events[-1] == {"done": 2, "total": 2, "unit": "checkpoints"}
    assert "after 9" in measured.summary
    assert len(set(map(tuple, workers))) == 1  # one actor for both


@pytest.mark.usefixtures("ray_cluster")
def test_a_lost_lock_ends_the_decoding(run: TrainingRun, text: EvaluationSet, tmp_path: Path) -> None:
    context, checkpoint = new_context(tmp_path / "out"), run.checkpoint(6)
    lost = replace(context, build=Build(context.folder, is_ours=partial(bool, 0)))
    with decoding.Translators(context, SETTINGS) as translators, pytest.raises(LockLostError):
        dev_scores.scores_of(lost, checkpoint, text, SETTINGS, translators)
