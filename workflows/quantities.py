"""Formats quantities for the terminal, the tables, the reports and the forecast."""

from math import floor, log10

SCORES = {"paper_bleu": "Moses BLEU", "sacrebleu": "sacreBLEU", "lowercased": "lower-cased", "chrf": "chrF", "f1": "F1"}
"""Scores in words, by their keys in the artifacts' files."""


def key(score: str, of: str) -> str:
    """Returns the key of a score of a test set, pair or cell in tables, MLflow and seeds.csv: `paper_bleu.EN-DE base`.

    Curves over updates have the keys of their files, like `dev_paper_bleu`, since MLflow would join them to results.
    """
    return f"{score}.{of}"


def in_words(key: str) -> str:
    """Returns a key in words: `Moses BLEU EN-DE base`."""
    score, _, of = key.partition(".")
    return f"{SCORES.get(score, score.replace('_', ' '))} {of}".strip()


def duration(seconds: float) -> str:
    """Formats a duration: `12 s`, `3 min 05 s` or `2 h 03 min`."""
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def flop_text(flop: float) -> str:
    """Formats a number of FLOP as briefly as the paper does, e.g. `3.3e18`."""
    mantissa, exponent = f"{flop:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def rate_text(flop_s: float) -> str:
    """Formats a rate in FLOP per second: `989 TFLOP/s`, `0.19 TFLOP/s`."""
    tera = flop_s / 1e12
    return f"{tera:,.0f} TFLOP/s" if tera >= 100 else f"{tera:.3g} TFLOP/s"


def rounded(number: float) -> str:
    """Shortens a number: 4500000 -> `4.5 M`, 25000 -> `25,000`."""
    return f"{number / 1e6:.3g} M" if number >= 1e6 else f"{number:,.0f}"


def percent(fraction: float) -> str:
    """Formats a fraction with two digits of it or of its complement, whichever is less: `4.2%`, `99.996%`."""
    smaller = 100 * min(fraction, 1 - fraction)
    if smaller <= 0:
        return f"{100 * fraction:g}%"
    text = f"{100 * fraction:.{max(0, 1 - floor(log10(smaller)))}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"
