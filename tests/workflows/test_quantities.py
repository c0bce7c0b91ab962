"""workflows.quantities: one format per kind of quantity."""

import pytest

from workflows.quantities import rate_text, rounded


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (rounded(999_999), "999,999"),
        (rounded(163_000), "163,000"),
        (rounded(4_520_620), "4.52 M"),
        (rate_text(2250e12), "2,250 TFLOP/s"),
        (rate_text(989.4e12), "989 TFLOP/s"),
        (rate_text(19.5e12), "19.5 TFLOP/s"),
        (rate_text(0.1873e12), "0.187 TFLOP/s"),
    ],
)
def test_numbers_have_one_style(text: str, wanted: str) -> None:
    """Thousands have commas, and rates are in TFLOP/s of any size."""
    assert text == wanted
