"""Batches as matrices of rows, one row per token.

    batch = Batch.padded(source_BS, target_BT, torch.float32)
    hidden_ND = model(batch.source, batch.inputs)            # row n predicts batch.targets_N[n]

Everything but attention treats tokens alike and works on x_ND. Only attention needs the layout: which rows form a
sentence (`model.attention`). All packed batches of a run have equal shapes; their leftover rows, after the last
sentence, do not enter the loss. docs/batches.md shows one batch in both layouts.

Shapes: N rows; B sentences, L length, S source length, T target length.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from model.attention import PackedLayout, PaddedLayout, masking_bias
from model.config import BEGIN_ID, PAD_ID
from model.cpu import pad_rows

KERNEL_BLOCK = 128
"""Rows per block of FlashAttention-2. For every sentence and head, its kernels launch as many blocks as the longest
sentence needs."""
ROWS_MULTIPLE = 64
"""The number of rows of a packed batch is a multiple of this."""


class Rows(NamedTuple):
    """One side (source or target) of a batch."""

    tokens_N: Tensor
    positions_N: Tensor
    """Position of each token in its sentence, from 0."""
    n_positions: int
    """Greater than every position."""
    layout: PaddedLayout | PackedLayout

    @classmethod
    def padded(cls, tokens_BL: Tensor, dtype: torch.dtype) -> "Rows":
        """Lays out token ids padded with PAD_ID, which is masked, for products in `dtype`."""
        padding_B11L = (tokens_BL == PAD_ID)[:, None, None]
        position_BL = torch.arange(tokens_BL.shape[1], device=tokens_BL.device).expand(tokens_BL.shape)
        # On a GPU, testing for padding would synchronise with the host.
        masks = tokens_BL.device.type != "cpu" or bool(padding_B11L.any())
        batch, length = tokens_BL.shape
        layout = PaddedLayout(batch, length, masking_bias(padding_B11L, dtype) if masks else None)
        tokens_N, positions_N = (pad_rows(ids_BL.flatten(), dtype) for ids_BL in (tokens_BL, position_BL))
        return cls(tokens_N, positions_N, length, layout)

    def by_sentence(self) -> Tensor:
        """Returns tokens_BL of padded rows. Raises ValueError if the rows are packed."""
        if not isinstance(self.layout, PaddedLayout):
            raise ValueError("only the Transformer supports packed batches; use Batch.padded")
        return self.layout.by_sentence(self.tokens_N).squeeze(2)

    def rows_of(self, x_BLX: Tensor) -> Tensor:
        """Inverse of `by_sentence` for hidden states; leftover rows are zero: x_NX."""
        x_NX = x_BLX.flatten(0, 1)
        return F.pad(x_NX, (0, 0, 0, len(self.tokens_N) - len(x_NX)))

    def map(self, function: Callable[[Tensor], Tensor]) -> "Rows":
        """Applies `function` to every tensor."""
        return Rows(function(self.tokens_N), function(self.positions_N), self.n_positions, self.layout.map(function))


class PackedSize(NamedTuple):
    """The shape of all packed batches of a run."""

    n_rows: int
    """Rows per side."""
    n_sentences: int
    """Sentences, including those that hold leftover rows."""
    n_positions: int
    """At least the length of every real sentence."""
    longest: int
    """At least the length of every sentence, leftover rows included."""

    @classmethod
    def of(cls, most_tokens: int, most_pairs: int, longest: int) -> "PackedSize":
        """Returns the size for at most `most_tokens` a side, `most_pairs` pairs and `longest` tokens a sentence.

        Leftover rows are cut into as few sentences as possible without launching more blocks.
        """
        block_rows = _ceil(longest, KERNEL_BLOCK)
        # Either side has a row for each leftover sentence, and together these hold all leftover rows.
        n_parts = -(-(most_tokens + ROWS_MULTIPLE - 1) // (block_rows - 1))
        return cls(_ceil(most_tokens + n_parts, ROWS_MULTIPLE), most_pairs + n_parts, longest, block_rows)

    @property
    def blocks(self) -> int:
        """Blocks that an attention kernel launches per head."""
        return self.n_sentences * _ceil(self.longest, KERNEL_BLOCK) // KERNEL_BLOCK


class Batch(NamedTuple):
    """The input of one forward and backward pass."""

    source: Rows
    inputs: Rows
    """The targets, shifted right: BEGIN_ID first (§3.1)."""
    targets_N: Tensor
    """The token that each row of `inputs` must predict; PAD_ID for none."""

    @classmethod
    def padded(cls, source_BS: Tensor, target_BT: Tensor, dtype: torch.dtype) -> "Batch":
        """Lays out token ids padded with PAD_ID, for products in `dtype`. Targets end with END_ID."""
        inputs = Rows.padded(shift_right(target_BT), dtype)
        targets_N = F.pad(target_BT.flatten(), (0, len(inputs.tokens_N) - target_BT.numel()), value=PAD_ID)
        return cls(Rows.padded(source_BS, dtype), inputs, targets_N)

    @classmethod
    def packed(cls, source_BS: Tensor, target_BT: Tensor, size: PackedSize) -> "Batch":
        """Packs token ids padded with PAD_ID, on the host. Targets end with END_ID.

        Raises ValueError if they exceed `size`.
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

    def map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """Applies `function` to every tensor."""
        return Batch(self.source.map(function), self.inputs.map(function), function(self.targets_N))

    def pinned(self) -> "Batch":
        """Copies the batch to pinned memory, for asynchronous transfer to a GPU."""
        return self.map(Tensor.pin_memory)

    def to(self, device: torch.device | str) -> "Batch":
        """Copies the batch to a device; asynchronous from pinned memory."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))


def shift_right(target_BT: Tensor) -> Tensor:
    """Returns the decoder inputs: BEGIN_ID, then the target without its last column (§3.1)."""
    begin_B1 = torch.full_like(target_BT[:, :1], BEGIN_ID)
    return torch.cat((begin_B1, target_BT[:, :-1]), dim=1)


def _ceil(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _parts(n_rows: int, n_parts: int) -> list[int]:
    """Splits rows into parts as equal as possible."""
    return [n_rows // n_parts + (part < n_rows % n_parts) for part in range(n_parts)]


def _pack(tokens_BL: Tensor, lengths_B: Tensor, left_over: list[int], size: PackedSize) -> Rows:
    """Packs one side: its sentences, the leftover rows as further sentences, then empty sentences.

    Attention kernels leave rows outside sentences undefined, and a query without keys has no softmax. Leftover rows
    therefore form sentences too, equally many on both sides.
    """
    real_BL = tokens_BL != PAD_ID
    position_BL = torch.arange(tokens_BL.shape[1]).expand(tokens_BL.shape)
    tokens_N, positions_N = torch.full((2, size.n_rows), PAD_ID)
    n_real = size.n_rows - sum(left_over)
    tokens_N[:n_real], positions_N[:n_real] = tokens_BL[real_BL], position_BL[real_BL]
    lengths = F.pad(torch.tensor([*lengths_B.tolist(), *left_over]), (1, 0))
    offsets = F.pad(lengths.cumsum(0), (0, size.n_sentences + 1 - len(lengths)), value=size.n_rows)
    return Rows(tokens_N, positions_N, size.n_positions, PackedLayout(offsets.int(), size.longest))
