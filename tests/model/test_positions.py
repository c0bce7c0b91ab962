"""Sinusoids are compared with the formula of §3.5, computed by hand."""

import math

from model.transformer import sinusoids


def test_sinusoids_are_the_formula() -> None:
    """Values equal sin and cos of pos / 10000^(2i/d_model) to float32 rounding, at distant positions too."""
    d_model = 6
    for first, n_positions in ((0, 5), (5000, 3)):
        pe_LD = sinusoids(n_positions, d_model, first)
        for row in range(n_positions):
            for i in range(d_model // 2):
                angle = (first + row) / 10000 ** (2 * i / d_model)
                assert abs(pe_LD[row, 2 * i] - math.sin(angle)) < 1e-7
                assert abs(pe_LD[row, 2 * i + 1] - math.cos(angle)) < 1e-7
