"""model.config: invalid sizes."""

import pytest

from model.config import TransformerConfig

SIZES = ("vocabulary_size", "n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "max_positions")


@pytest.mark.parametrize("name", SIZES)
def test_a_size_is_at_least_one(name: str) -> None:
    """0 is an error that names the field. 1 is valid except for d_model, whose sinusoids come in pairs."""
    with pytest.raises(ValueError, match=f"^{name} is 0; it must be at least 1"):
        TransformerConfig(**{name: 0})
    smallest = 2 if name == "d_model" else 1
    assert getattr(TransformerConfig(**{name: smallest}), name) == smallest


@pytest.mark.parametrize("d_model", [1, 3, 511])
def test_an_odd_width_is_refused(d_model: int) -> None:
    """Even widths that are not multiples of four are valid."""
    with pytest.raises(ValueError, match=f"d_model is {d_model}; sinusoids come in pairs"):
        TransformerConfig(d_model=d_model)
    assert TransformerConfig(d_model=2 * d_model).d_model == 2 * d_model


def test_dropout_is_a_probability_below_one() -> None:
    """Dropout of 1 is an error; 0 is valid."""
    for dropout in (-0.01, 1.0, 1.5):
        with pytest.raises(ValueError, match="at least 0 and below 1"):
            TransformerConfig(dropout=dropout)
    assert [TransformerConfig(dropout=dropout).dropout for dropout in (0.0, 0.99)] == [0.0, 0.99]
