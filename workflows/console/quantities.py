"""Quantities in words, for the terminal, the tables, the reports and the forecast."""

from math import floor, log10


def duration(seconds: float) -> str:
    """12 s, 3 min 05 s, 2 h 03 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def flop_text(flop: float) -> str:
    """3.3e18, as short as the paper prints it."""
    mantissa, exponent = f"{flop:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def rounded(number: float) -> str:
    """4500000 -> 4.5 M; 25000 -> 25,000."""
    return f"{number / 1e6:.3g} M" if number >= 1e6 else f"{number:,.0f}"


def percent(fraction: float) -> str:
    """0.0421 -> `4.2 %`, 0.99996 -> `99.996 %`: two digits of what there is or of what is missing, the less of them."""
    less = 100 * min(fraction, 1 - fraction)
    if less <= 0:
        return f"{100 * fraction:g} %"
    text = f"{100 * fraction:.{max(0, 1 - floor(log10(less)))}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"
