"""Positional encodings (paper §3.5).

Shapes: L positions, D = d_model.
"""

import torch
from torch import Tensor


def sinusoids(n_positions: int, d_model: int, first: int = 0) -> Tensor:
    """Computes PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos of the same: pe_LD, float32.

    The rows are positions `first` to `first + n_positions - 1`. The angles are float64, because at position 5000 a
    float32 angle is already off by 3e-4.
    """
    position_L1 = torch.arange(first, first + n_positions, dtype=torch.float64)[:, None]
    exponent_I = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    angle_LI = position_L1 / 10000.0**exponent_I
    return torch.stack((angle_LI.sin(), angle_LI.cos()), dim=-1).reshape(n_positions, d_model).float()
