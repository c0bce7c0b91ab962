"""pipeline.settings: what belongs to a stage's identity."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from model.config import BASE
from pipeline.settings import TrainingSettings


def test_a_size_added_later_is_left_out_where_it_changes_nothing() -> None:
    """Trainings from before `attention_window` keep their identity; another window is another training."""
    before = TrainingSettings().identity()
    assert "attention_window" not in before["model"]
    assert before["model"].keys() == BASE.__dict__.keys() - {"attention_window"}
    restricted = TrainingSettings(model=replace(BASE, attention_window=9)).identity()
    assert restricted == {**before, "model": {**before["model"], "attention_window": 9}}


def test_a_window_below_zero_is_refused() -> None:
    """By the settings, with the name and the value."""
    with pytest.raises(ValidationError, match="attention_window is -1; it must be at least 1, or 0 for no limit"):
        TrainingSettings.model_validate({"model": {"attention_window": -1}})
