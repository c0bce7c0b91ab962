"""pipeline.settings: what belongs to a stage's identity."""

import pytest
from pydantic import ValidationError

from pipeline.settings import TrainingSettings


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({"attention_window": -1}, "attention_window is -1; it must be at least 1, or 0 for no limit"),
        ({"attention_dropout": 1.0}, "attention_dropout is 1.0; it must be at least 0 and below 1"),
        ({"attention_dropout": -0.1}, "attention_dropout is -0.1; it must be at least 0 and below 1"),
    ],
)
def test_a_size_that_cannot_be_is_refused(size: dict[str, float], message: str) -> None:
    """By the settings, with the name and the value."""
    with pytest.raises(ValidationError, match=message):
        TrainingSettings.model_validate({"model": size})
