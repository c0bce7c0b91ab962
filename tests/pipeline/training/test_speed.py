"""pipeline.training.speed: training speeds of several models, timed in turn."""

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import EncodedDataset
from pipeline.training import speed
from tests.support.tiny_training import TINY, with_fields

TICK_S = 0.5
"""Advance of the stage's clock on each reading."""
pytestmark = pytest.mark.usefixtures("one_thread")


def settings_of(architecture: Any, **fields: Any) -> TrainingSettings:
    """Returns TINY with another architecture and enough positions for the longest sentence."""
    positions = "learned" if architecture == "convolutional" else "sinusoidal"
    model = replace(TINY.model, n_layers=2, architecture=architecture, positions=positions, max_positions=200)
    return with_fields(model=model, **fields)


def test_times_all_models_in_every_round(dataset: EncodedDataset, tmp_path: Path, monkeypatch: Any) -> None:
    """A deeper model takes longer, times are per update, and only the measurements are kept."""
    monkeypatch.setattr(speed, "UPDATES", 2)
    monkeypatch.setattr(speed, "ROUNDS", 3)
    monkeypatch.setattr(speed, "LENGTHS", (4, 16, 1024))  # the last is longer than the learned positions
    monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=itertools.count(step=TICK_S).__next__))
    small, large = settings_of("recurrent"), settings_of("convolutional")
    large = with_fields(model=replace(large.model, n_layers=12), checkpoint_updates=1, validation_updates=1)
    timed = speed.time_(Context(tmp_path), dataset, [small, large])
    assert [file.name for file in tmp_path.iterdir()] == ["training_speed.json"]
    first, second = timed.load().models
    assert [first.architecture, second.architecture] == ["recurrent", "convolutional"]
    assert second.parameters > first.parameters
    for model in (first, second):
        assert len(model.update_s) == 3
        assert model.tokens_s.keys() == {4, 16}
        assert all(len(rates) == 3 and min(rates) > 0 for rates in model.tokens_s.values())
    assert first.tokens_s[4][0] == 3 * (small.budget_tokens // 4) * 4 / TICK_S
    assert second.mean_update_s > 1.5 * first.mean_update_s
    assert timed.summary.count("update") == 2


def test_says_whose_sentences_are_too_long(dataset: EncodedDataset, tmp_path: Path) -> None:
    """The loop's own checks apply."""
    short = settings_of("convolutional")
    with pytest.raises(UserError, match="max_positions"):
        speed.time_(Context(tmp_path), dataset, [with_fields(model=replace(short.model, max_positions=2))])
