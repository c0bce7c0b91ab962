"""pipeline.evaluation.averaging: the mean of the right checkpoints, exact even where float32 would not be."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pipeline.artifacts import TrainingRun
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.evaluation.averaging import average, mean_weights
from pipeline.evaluation.translation import load_model
from pipeline.settings import AveragingSettings


def test_mean_of_the_last_two(finished_run: TrainingRun, tmp_path: Path) -> None:
    checkpoint = average(Context(tmp_path), finished_run, AveragingSettings(last=2))
    assert checkpoint.read_json("averaging.json") == {"updates": [6, 9]}
    sixth, ninth = (load_file(finished_run.folder / f"checkpoints/{update:08d}/model.safetensors") for update in (6, 9))
    for name, weight in load_model(checkpoint.folder).state_dict().items():
        torch.testing.assert_close(weight, (sixth[name] + ninth[name]) / 2)
        assert not torch.equal(weight, ninth[name])
    assert (checkpoint.folder / "joint.model").read_bytes() == (finished_run.folder / "joint.model").read_bytes()


def test_more_than_were_kept_is_refused(finished_run: TrainingRun, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"last = 4 .* kept 3; .*keep_checkpoints"):
        average(Context(tmp_path), finished_run, AveragingSettings(last=4))


def test_sum_is_in_float64() -> None:
    """A float32 sum of 1e8, twenty 1s and -1e8 would lose every 1. The mean keeps them."""
    mean = mean_weights({"w": torch.tensor([weight])} for weight in [1e8, *[1.0] * 20, -1e8])
    assert mean["w"].item() == pytest.approx(20 / 22)
