"""Dropout whose masks belong to the rows of a batch (paper §5.4).

    keys_B = pair_keys(seed, update, pairs_B)                     # one integer a sentence pair
    Dropout(0.1, "encoder.0.attention", d_model)(x_ND, keys_N)    # one integer a row: model.batch

A mask is a hash of the row's key, the place in the model and the column. So it is the same however rows are put
together (padded or packed, in one pass or in many, by any number of workers), compiled or not, on a CPU or a GPU; and a
pass draws nothing, so there is no state to save. Keys and columns are mixed by MurmurHash3's finaliser, with the
constants of github.com/skeeto/hash-prospector. Of their product, mixed once more, each half decides about one element.

Shapes: B sentence pairs, N rows, X columns.
"""

import hashlib
import math
import struct
from functools import cache

import torch
from torch import Tensor, nn

LEVELS = 1 << 16  # values of an element's 16 random bits
FACTOR = 0x7FEB352D


def mixed(z: Tensor) -> Tensor:
    """Scrambles int32 values, in place: each bit of the result depends on all bits of a value."""
    z.bitwise_xor_((z >> 16).bitwise_and_(0xFFFF)).mul_(FACTOR)
    z.bitwise_xor_((z >> 15).bitwise_and_(0x1FFFF)).mul_(0x846CA68B - (1 << 32))
    return z.bitwise_xor_((z >> 16).bitwise_and_(0xFFFF))


def pair_keys(seed: int, update: int, pairs_B: Tensor) -> Tensor:
    """Returns keys_B, one int32 for each pair's number in the training text, unrelated to those of other updates."""
    low, high = struct.unpack("<ii", hashlib.blake2b(f"{seed} {update}".encode(), digest_size=8).digest())
    return mixed(mixed(pairs_B.int() + low) + high)


@cache
def position_keys(n: int, side: int, device: torch.device) -> Tensor:
    """Returns the keys of positions 0 to n - 1 of a side: 0 or 1 (source or target)."""
    return mixed(torch.arange(side + 1, 2 * n + side + 1, 2, dtype=torch.int32, device=device))


def row_keys(pair_keys_N: Tensor, position_keys_N: Tensor) -> Tensor:
    """Returns the keys of rows, from those of their pairs and of their positions."""
    return mixed(pair_keys_N + position_keys_N).bitwise_or_(1)  # odd, for products


class Dropout(nn.Module):
    """Zeroes each element with probability `p` in training and scales the rest by 1 / (1 - p).

    `p` is rounded to a multiple of 1/65,536 (0.1 becomes 0.10001), and the scale follows. On a CPU the hash takes as
    long as drawing 16 bits an element would.
    """

    def __init__(self, p: float, place: str, *shape: int) -> None:
        """`place` names the place in the model. `shape` is the most columns; for attention weights (heads, 1, keys)."""
        super().__init__()
        self.p = p
        start = int.from_bytes(hashlib.blake2b(place.encode(), digest_size=4).digest(), signed=True)
        self.words: Tensor  # a buffer, so that equal layers share a compiled graph
        *heads, width = shape
        words = torch.arange(start, start + math.prod(heads) * ((width + 1) // 2)).int()
        self.register_buffer("words", mixed(words).bitwise_or_(1).view(*heads, -1), persistent=False)

    def forward(self, x: Tensor, row_keys: Tensor | None) -> Tensor:
        """x_NX and keys_N, or any equal shapes before the last -> the shape of x; X within its shape.

        Raises ValueError in training if the batch has no keys.
        """
        if not (self.training and self.p):
            return x
        if row_keys is None:
            raise ValueError("dropout needs the keys of a batch's rows; build the batch with pair_keys")
        dropped_levels = min(round(self.p * LEVELS), LEVELS - 1)  # p below 1 keeps something
        kept = torch.empty_like(x)
        torch.ge(self._bits(row_keys, x.shape[-1]), dropped_levels - LEVELS // 2, out=kept)
        # Not kept * scale, which would round the scale to bfloat16: 1.1797 instead of 1.1765 for p = 0.15.
        return (x * kept).mul_(LEVELS / (LEVELS - dropped_levels))

    def _bits(self, row_keys: Tensor, width: int) -> Tensor:
        """Returns 16 bits an element, as signed integers: (..., width)."""
        compiling = torch.compiler.is_compiling()
        words = self.words.repeat_interleave(2, -1)[..., :width] if compiling else self.words[..., : (width + 1) // 2]
        bits = row_keys[..., None] * words
        # Sums, since the shift repeats the sign: an exclusive or would clear the highest bit.
        shifted = bits >> 15
        bits = bits.add_(shifted).mul_(FACTOR)
        bits = bits.add_(torch.bitwise_right_shift(bits, 16, out=shifted))
        if not compiling:
            return bits.view(torch.int16)[..., :width]
        # The same for each element alone, which fuses: the lower half first, as on little-endian machines. As int64, so
        # that torch keeps the mask for the backward pass, being less than a quarter as large, and fuses that, too.
        return (torch.where(torch.arange(width, device=bits.device) % 2 == 0, bits << 16, bits) >> 16).long()
