"""The loop, the stages after it, and stages that need heads, with a recurrent and a convolutional model."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model.architectures import ARCHITECTURES
from pipeline.artifacts import EncodedDataset, EvaluationSet, TrainingRun
from pipeline.attention.translated import AttentionTranslator
from pipeline.errors import UserError
from pipeline.evaluation.averaging import average
from pipeline.evaluation.perplexity import measure
from pipeline.evaluation.translation import Translator, load_model
from pipeline.settings import AveragingSettings, DecodingSettings, TrainingSettings
from pipeline.training.workers import Workers
from tests.support.baselines import NAMES
from tests.support.contexts import new_context
from tests.support.tiny_training import TINY, curve, train_as, train_in_processes, weights, with_fields

pytestmark = [pytest.mark.spawns, pytest.mark.usefixtures("many_recoveries")]


def settings_of(name: Any, **fields: Any) -> TrainingSettings:
    positions = "learned" if name == "convolutional" else "sinusoidal"
    return with_fields(model=replace(TINY.model, n_layers=2, architecture=name, positions=positions), **fields)


@pytest.mark.parametrize("name", NAMES)
def test_trains_and_translates(name: str, dataset: EncodedDataset, dev_set: EvaluationSet, tmp_path: Path) -> None:
    """An interrupted run is bit-identical, two workers have the same curve, and the stages after training work."""
    settings, alone = settings_of(name), Workers()
    for until in (5, None):
        train_as(alone, dataset, settings, tmp_path / "cut", until)
    train_as(alone, dataset, settings, tmp_path / "whole")
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    losses = curve(tmp_path / "whole")
    assert losses[TINY.updates - 1] < losses[0] - 0.1
    assert curve(train_in_processes(2, dataset, settings, tmp_path / "two")) == pytest.approx(losses, rel=1e-4)

    shutil.copyfile(dataset.folder / "joint.model", tmp_path / "whole" / "joint.model")
    run = TrainingRun(tmp_path / "whole")
    checkpoint = average(new_context(tmp_path / "averaged"), run, AveragingSettings(last=2))
    assert isinstance(load_model(checkpoint.folder), ARCHITECTURES[name])
    perplexity = measure(new_context(tmp_path / "perplexity"), checkpoint, dev_set).load().dev_perplexity
    assert perplexity == pytest.approx(torch.tensor(losses[-1]).exp().item(), rel=0.5)
    lines = ["Two dogs run .", "", "A man in a blue shirt is standing on a ladder ."]
    search = DecodingSettings(dtype="float32", max_extra_tokens=5)
    together = Translator(checkpoint.folder, search).translate(lines)
    assert together == [Translator(checkpoint.folder, search).translate([line])[0] for line in lines]

    refusal = f"^{checkpoint.folder}: a {name} model has no attention heads; choose a Transformer$"
    with pytest.raises(UserError, match=refusal):
        AttentionTranslator(checkpoint.folder, search)


@pytest.mark.parametrize("name", NAMES)
def test_trains_in_bfloat16(name: str, dataset: EncodedDataset, tmp_path: Path) -> None:
    """Losses are close to float32's, and the weights decode in bfloat16."""
    for dtype in ("float32", "bfloat16"):
        train_as(Workers(), dataset, settings_of(name, dtype=dtype, updates=3), tmp_path / dtype)
    assert curve(tmp_path / "bfloat16") == pytest.approx(curve(tmp_path / "float32"), rel=0.01)
    shutil.copyfile(dataset.folder / "joint.model", tmp_path / "bfloat16" / "joint.model")
    folder = TrainingRun(tmp_path / "bfloat16").checkpoint(3).folder
    in_bfloat16, in_float32 = (
        Translator(folder, DecodingSettings(dtype=dtype, max_extra_tokens=5)).translations(["Two dogs run ."])[0]
        for dtype in ("bfloat16", "float32")
    )
    assert in_bfloat16.score == pytest.approx(in_float32.score, rel=0.1)
