"""A batch as rows, a token each: the form in which the model computes.

    batch = Batch.padded(source_BS, target_BT, torch.float32)
    hidden_ND = model(batch.source, batch.inputs)            # row n predicts batch.targets_N[n]

Everything but attention treats all tokens alike, so it works on a matrix x_ND. Only attention needs to know which rows
form a sentence: their layout (`model.attention`). In all packed batches of a run, N and the number of sentences are the
same, and so are all shapes. Leftover rows are padding: their tokens are PAD_ID, and no loss is computed on them.
docs/batches.md shows one batch in both layouts.

Shapes: N rows; B sentences, L length, S source length, T target length.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from model.attention import PackedLayout, PaddedLayout, masking
from model.config import BEGIN_ID, PAD_ID
from model.cpu import filled

KERNEL_BLOCK = 128
"""Rows of a sentence that a block of FlashAttention-2 computes. Its kernels launch as many blocks for each sentence and
head as the longest sentence needs."""
ROWS_MULTIPLE = 64
"""A packed batch has a multiple of this many rows."""


class Rows(NamedTuple):
    """One side of a batch."""

    tokens_N: Tensor
    positions_N: Tensor
    """Counted from 0 in each sentence."""
    n_positions: int
    """All positions are less than this."""
    layout: PaddedLayout | PackedLayout

    @classmethod
    def padded(cls, tokens_BL: Tensor, dtype: torch.dtype) -> "Rows":
        """Lays out token ids, padded with PAD_ID, which no query sees, for products in `dtype`."""
        padding_B11L = (tokens_BL == PAD_ID)[:, None, None]
        position_BL = torch.arange(tokens_BL.shape[1], device=tokens_BL.device).expand(tokens_BL.shape)
        # On a GPU, asking whether there is any padding would make the host wait.
        masks = tokens_BL.device.type != "cpu" or bool(padding_B11L.any())
        batch, length = tokens_BL.shape
        layout = PaddedLayout(batch, length, masking(padding_B11L, dtype) if masks else None)
        tokens_N, positions_N = (filled(ids_BL.flatten(), dtype) for ids_BL in (tokens_BL, position_BL))
        return cls(tokens_N, positions_N, length, layout)

    def by_sentence(self) -> Tensor:
        """Returns the token ids of padded rows: tokens_BL. Raises ValueError if the rows are packed."""
        if not isinstance(self.layout, PaddedLayout):
            raise ValueError("only the Transformer computes packed rows; lay the batch out by Batch.padded")
        return self.layout.by_sentence(self.tokens_N).squeeze(2)

    def rows_of(self, x_BLX: Tensor) -> Tensor:
        """Lays out what was computed of `by_sentence` as these rows, those left over zero: x_NX."""
        x_NX = x_BLX.flatten(0, 1)
        return F.pad(x_NX, (0, 0, 0, len(self.tokens_N) - len(x_NX)))

    def each(self, change: Callable[[Tensor], Tensor]) -> "Rows":
        """Changes every tensor."""
        return Rows(change(self.tokens_N), change(self.positions_N), self.n_positions, self.layout.each(change))


class PackedSize(NamedTuple):
    """The size that all packed batches of a run have in common, so that all shapes in it are the same."""

    n_rows: int
    """Rows of either side."""
    n_sentences: int
    """Sentences, those of rows left over included."""
    n_positions: int
    """At least the length of every sentence that counts."""
    longest: int
    """At least the length of every sentence."""

    @classmethod
    def of(cls, most_tokens: int, most_pairs: int, longest: int) -> "PackedSize":
        """Fits batches of at most `most_tokens` on either side, `most_pairs` pairs and `longest` tokens a sentence.

        Leftover rows are cut into as few parts as need no more blocks than `longest` does.
        """
        block_rows = _ceil(longest, KERNEL_BLOCK)
        # Either side has a row for each part, and together the parts hold all rows.
        n_parts = -(-(most_tokens + ROWS_MULTIPLE - 1) // (block_rows - 1))
        return cls(_ceil(most_tokens + n_parts, ROWS_MULTIPLE), most_pairs + n_parts, longest, block_rows)

    @property
    def blocks(self) -> int:
        """Blocks that one of attention's kernels launches for each head."""
        return self.n_sentences * _ceil(self.longest, KERNEL_BLOCK) // KERNEL_BLOCK


class Batch(NamedTuple):
    """What one forward and backward pass is computed from."""

    source: Rows
    inputs: Rows
    """The targets shifted right, BEGIN_ID first (§3.1)."""
    targets_N: Tensor
    """What each row of `inputs` is to predict; PAD_ID where nothing counts."""

    @classmethod
    def padded(cls, source_BS: Tensor, target_BT: Tensor, dtype: torch.dtype) -> "Batch":
        """Lays out token ids, padded with PAD_ID, for products in `dtype`; targets end with END_ID."""
        inputs = Rows.padded(shift_right(target_BT), dtype)
        targets_N = F.pad(target_BT.flatten(), (0, len(inputs.tokens_N) - target_BT.numel()), value=PAD_ID)
        return cls(Rows.padded(source_BS, dtype), inputs, targets_N)

    @classmethod
    def packed(cls, source_BS: Tensor, target_BT: Tensor, size: PackedSize) -> "Batch":
        """Packs token ids, padded with PAD_ID, on the host; targets end with END_ID.

        Raises ValueError if they do not fit into `size`.
        """
        lengths = [(tokens_BL != PAD_ID).sum(dim=1) for tokens_BL in (source_BS, target_BT)]
        left_over = [size.n_rows - int(lengths_B.sum()) for lengths_B in lengths]
        n_parts = max(-(-rows // size.longest) for rows in left_over)
        longest = max(int(lengths_B.max()) for lengths_B in lengths)
        if min(left_over) < n_parts or longest > size.n_positions or len(source_BS) + n_parts > size.n_sentences:
            raise ValueError(f"{len(source_BS)} pairs of at most {longest} tokens do not fit into a batch of {size}")
        source, target = (
            _pack(tokens_BL, lengths_B, _parts(rows, n_parts), size)
            for tokens_BL, lengths_B, rows in zip((source_BS, target_BT), lengths, left_over, strict=True)
        )
        begins = lengths[1].cumsum(0) - lengths[1]
        inputs_N = target.tokens_N.roll(1).index_fill_(0, begins, BEGIN_ID)
        return cls(source, target._replace(tokens_N=inputs_N), target.tokens_N)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """Changes every tensor."""
        return Batch(self.source.each(change), self.inputs.each(change), change(self.targets_N))

    def pinned(self) -> "Batch":
        """Copies the batch to memory from which it gets to a GPU while the host goes on."""
        return self.each(Tensor.pin_memory)

    def to(self, device: torch.device | str) -> "Batch":
        """Copies the batch to a device, from pinned memory without waiting."""
        return self.each(lambda tensor: tensor.to(device, non_blocking=True))


def shift_right(target_BT: Tensor) -> Tensor:
    """Returns the decoder inputs: BEGIN_ID, then the target without its last column (§3.1)."""
    begin_B1 = torch.full_like(target_BT[:, :1], BEGIN_ID)
    return torch.cat((begin_B1, target_BT[:, :-1]), dim=1)


def _ceil(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _parts(n_rows: int, n_parts: int) -> list[int]:
    """Cuts rows into parts as equal as can be."""
    return [n_rows // n_parts + (part < n_rows % n_parts) for part in range(n_parts)]


def _pack(tokens_BL: Tensor, lengths_B: Tensor, left_over: list[int], size: PackedSize) -> Rows:
    """Packs one side: its sentences, then the rows left over as sentences of their own, then sentences of no rows.

    Attention's kernels leave rows of no sentence undefined, and a query without a key has no softmax, so the rows left
    over form sentences too, as many on either side.
    """
    real_BL = tokens_BL != PAD_ID
    position_BL = torch.arange(tokens_BL.shape[1]).expand(tokens_BL.shape)
    tokens_N, positions_N = torch.full((2, size.n_rows), PAD_ID)
    n_real = size.n_rows - sum(left_over)
    tokens_N[:n_real], positions_N[:n_real] = tokens_BL[real_BL], position_BL[real_BL]
    lengths = F.pad(torch.tensor([*lengths_B.tolist(), *left_over]), (1, 0))
    offsets = F.pad(lengths.cumsum(0), (0, size.n_sentences + 1 - len(lengths)), value=size.n_rows)
    return Rows(tokens_N, positions_N, size.n_positions, PackedLayout(offsets.int(), size.longest))
