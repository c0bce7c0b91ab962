import pytest

from workflows.quantities import duration, in_words, percent, rate_text, rounded


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (rounded(999_999), "999,999"),
        (rounded(4_520_620), "4.52 M"),
        (rate_text(2250e12), "2,250 TFLOP/s"),
        (rate_text(0.1873e12), "0.187 TFLOP/s"),
        (percent(0), "0%"),
        (percent(1), "100%"),
        (percent(0.0421), "4.2%"),
        (percent(0.1), "10%"),
        (percent(0.99996), "99.996%"),
        (percent(0.000_003_12), "0.00031%"),
        (percent(0.967), "96.7%"),
        (duration(59.7), "1 min 00 s"),
        (in_words("paper_bleu.EN-DE base"), "Moses BLEU EN-DE base"),
    ],
)
def test_numbers_and_names_have_one_style(text: str, wanted: str) -> None:
    """Thousands have commas, and rates are in TFLOP/s of any size. A percentage has two digits of the smaller part."""
    assert text == wanted
