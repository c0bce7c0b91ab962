"""pipeline.evaluation.dev_scores: every kept checkpoint is scored individually."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pipeline.evaluation import averaging, decoding, dev_scores, scoring
from pipeline.settings import AveragingSettings, DecodingSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import EvaluationSet, TrainingRun
from pipeline.store.scratch import LockLostError, Scratch
from pipeline.store.store import Store
from tests.support.parallel_text import set_of
from tests.support.ray_workers import workers_alive
from tests.support.s3_server import S3Server
from tests.support.tiny_records import TRAINING
from tests.support.tiny_training import copied

SETTINGS = DecodingSettings(max_extra_tokens=5, workers=1)
LINES = ["Two dogs run .", "A man reads .", "The house is old ."]


@pytest.fixture
def text(tmp_path: Path) -> EvaluationSet:
    return set_of(tmp_path / "text", [(line, line) for line in LINES])


@pytest.fixture
def run(finished_run: TrainingRun) -> TrainingRun:
    return finished_run.write(TRAINING.model_copy(update={"checkpoints": (6, 9)}))


def _folder(path: Path) -> Context:
    path.mkdir()
    return Context(path)


@pytest.mark.usefixtures("ray_cluster")
def test_every_kept_checkpoint_is_scored(run: TrainingRun, text: EvaluationSet, tmp_path: Path) -> None:
    events: list[dict[str, object]] = []
    out = tmp_path / "out"
    out.mkdir()
    workers: list[list[int]] = []

    def emit(event: dict[str, object]) -> None:
        events.append(event)
        workers.append(workers_alive("DecodingWorker"))

    measured = dev_scores.measure(Context(out, emit), run, text, SETTINGS)
    series = measured.load().series
    assert {name: list(scores) for name, scores in series.items()} == {
        "dev_paper_bleu": [6, 9],
        "dev_sacrebleu": [6, 9],
    }
    last = averaging.average(_folder(tmp_path / "last"), run, AveragingSettings(last=1))
    hypotheses = decoding.decode(_folder(tmp_path / "hypotheses"), last, text, SETTINGS)
    scores = scoring.score(_folder(tmp_path / "scores"), hypotheses, text).load()
    assert (series["dev_paper_bleu"][9], series["dev_sacrebleu"][9]) == (scores.paper_bleu, scores.sacrebleu)
    assert [path.name for path in out.iterdir()] == ["dev_scores.json"]  # neither weights nor translations
    assert events[-1] == {"done": 2, "total": 2, "unit": "checkpoints"}
    assert "after 9" in measured.summary
    assert len(set(map(tuple, workers))) == 1  # one actor for both


@pytest.mark.usefixtures("ray_cluster")
def test_a_lost_lock_ends_the_decoding(run: TrainingRun, text: EvaluationSet, tmp_path: Path) -> None:
    context, checkpoint = _folder(tmp_path / "out"), run.checkpoint(6)
    lost = replace(context, shared=Scratch(context.folder, is_ours=partial(bool, 0)))
    with decoding.Translators(context, checkpoint, SETTINGS) as translators, pytest.raises(LockLostError):
        dev_scores.scores_of(lost, checkpoint, text, SETTINGS, translators)


@pytest.mark.usefixtures("ray_cluster")
def test_actors_of_another_machine_decode_from_a_bucket(
    run: TrainingRun, text: EvaluationSet, at_s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a shared disk, a machine downloads only the checkpoints that it decodes and nothing else large, and its
    scores equal those with a shared disk."""
    expected = dev_scores.measure(_folder(tmp_path / "shared"), run, text, SETTINGS).load()
    store = Store.at(f"{at_s3.bucket()}/runs")
    stored = store.publish("training-1", partial(copied, run), {}, holds_lock=lambda: True)
    there = {**at_s3.variables, "AIAYN_CACHE": str(tmp_path / "another machine")}
    monkeypatch.setattr(decoding, "worker_environment", lambda: there)
    context = replace(_folder(store.scratch("dev_scores-1")), shared=store.shared_scratch("dev_scores-1"))
    settings = SETTINGS.model_copy(update={"threads": 2})  # a process of its own, with that environment
    assert dev_scores.measure(context, stored, text, settings).load() == expected
    fetched = tmp_path.glob("another machine/*/store/training-1/**/*.safetensors")
    assert sorted(path.parent.name for path in fetched) == ["00000006", "00000009"]
