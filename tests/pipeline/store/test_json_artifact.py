"""JSON artifacts: content is read back unchanged, and a broken file is a one-line error."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import UserError
from pipeline.store.artifacts import Checkpoint, Scores, TrainingRun
from tests.support.tiny_records import CONFIG, TRAINING


def test_a_missing_figure_is_one_line(tmp_path: Path) -> None:
    """The error has the file and the missing key."""
    run, scores = TrainingRun(tmp_path), Scores(tmp_path)
    run.write_json("run.json", TRAINING.model_dump(mode="json", exclude={"segments"}))
    with pytest.raises(
        UserError, match=rf"^{tmp_path}/run\.json has no 'segments'; restore it, or move {tmp_path} elsew"
    ):
        run.load()
    scores.write_json("scores.json", {"paper_bleu": 1.0, "language": "de"})
    with pytest.raises(UserError, match=r"scores\.json has no 'sacrebleu'"):
        scores.load()


def test_the_key_of_another_version_is_ignored(tmp_path: Path) -> None:
    """A finished run stays readable if another version records more or fewer keys, at any depth."""
    run = TrainingRun(tmp_path)
    recorded = TRAINING.model_dump(mode="json")
    recorded["settings"]["packed_in_2027"] = True
    recorded["settings"]["optimizer"]["novel"] = 1
    recorded["segments"][0]["captured_by"] = "graph"
    run.write_json("run.json", {**recorded, "peak_memory_bytes": 5})
    assert run.load() == TRAINING
    recorded["stretches"] = recorded.pop("segments")
    del recorded["loop_s"], recorded["settings"]["optimizer"]["warmup_steps"]
    run.write_json("run.json", recorded)
    assert run.load() == TRAINING.model_copy(update={"loop_s": None})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": 3}, "d_model is 3; sinusoids come in pairs"),
        ({"norm_first": True}, "unknown to this version: norm_first"),
    ],
)
def test_a_configuration_that_is_no_model_s_is_one_line(tmp_path: Path, fields: Any, message: str) -> None:
    """A field unknown to this version is an error, because it may change the meaning of the weights."""
    checkpoint = Checkpoint(tmp_path)
    checkpoint.write_json("model.json", CONFIG.__dict__)
    assert checkpoint.config == CONFIG
    checkpoint.write_json("model.json", {**CONFIG.__dict__, **fields})
    with pytest.raises(UserError, match=message) as caught:
        _ = checkpoint.config
    assert "\n" not in str(caught.value)
