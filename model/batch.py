"""A batch as rows, a token each: the form in which the model computes.

    batch = Batch.in_grid(source_BS, target_BT, torch.float32)
    hidden_ND = model(batch.source, batch.inputs)            # row n predicts batch.targets_N[n]

Everything but attention treats all tokens alike, so it works on a matrix x_ND. Which rows form a sentence, and what may
be seen of it, attention alone needs to know. There are two forms:

    Grid     every sentence has as many rows as the longest one, so the products by sentence are views. CPUs use it.
    Packed   sentences of any lengths follow one another, as the GPUs' kernels for variable lengths take them. N and
             the number of sentences are the same in all batches of a training, and so are all shapes.

Rows left over belong to no sentence that counts: their tokens are PAD_ID, and no loss is computed on them.
docs/batches.md shows one batch in both forms.

Shapes: N rows; B sentences, L length, S source length, T target length; H heads, X columns of any meaning, K = X / H.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from model.config import BEGIN_ID, PAD_ID
from model.cpu import filled

KERNEL_BLOCK = 128
"""Rows of a sentence that a block of FlashAttention-2 computes. Its kernels launch as many blocks for each sentence and
head as the longest sentence needs."""
ROWS_MULTIPLE = 64
"""A packed batch has a multiple of this many rows."""


class Grid(NamedTuple):
    """Sentence b has the rows from b·length on; rows beyond its end are padding."""

    batch: int
    length: int
    bias: Tensor | None
    """Added to scores where these rows are keys: -inf where a query must not look, 0 elsewhere; broadcastable to
    (B, H, query length, L). None if nothing is hidden. An addition takes a sixth of the time of `masked_fill`."""

    def by_sentence(self, x_NX: Tensor) -> Tensor:
        """Drops the rows left over: x_BLX."""
        return x_NX[: self.batch * self.length].view(self.batch, self.length, -1)

    def by_head(self, x_NX: Tensor, n_heads: int) -> Tensor:
        """Drops the rows left over and splits the columns into heads: x_BHLK."""
        return x_NX[: self.batch * self.length].view(self.batch, self.length, n_heads, -1).transpose(1, 2)

    def looking_back(self, x_ND: Tensor) -> "Grid":
        """Hides later positions (§3.2.3), and so padding from every real one; for scores of the type of `x_ND`."""
        later_TT = torch.ones(self.length, self.length, dtype=torch.bool, device=x_ND.device).triu(1)
        return self._replace(bias=hiding(later_TT, x_ND.dtype) if self.length > 1 else None)


class Packed(NamedTuple):
    """Sentence b has the rows from offsets[b] up to offsets[b + 1]."""

    offsets: Tensor
    """int32, (B + 1,)."""
    longest: int
    """At least the length of every sentence."""
    causal: bool = False
    """Hides later positions where these rows are keys (§3.2.3)."""

    def looking_back(self, x_ND: Tensor) -> "Packed":
        """Hides later positions (§3.2.3)."""
        return self._replace(causal=True)


Sentences = Grid | Packed


class Memory(NamedTuple):
    """The rows that queries attend to."""

    x_ND: Tensor
    sentences: Sentences


class Rows(NamedTuple):
    """One side of a batch."""

    tokens_N: Tensor
    positions_N: Tensor
    """Counted from 0 in each sentence."""
    n_positions: int
    """All positions are less than this."""
    sentences: Sentences

    def each(self, change: Callable[[Tensor], Tensor]) -> "Rows":
        """Changes every tensor."""
        sentences = self.sentences
        if isinstance(sentences, Packed):
            sentences = sentences._replace(offsets=change(sentences.offsets))
        elif sentences.bias is not None:
            sentences = sentences._replace(bias=change(sentences.bias))
        return Rows(change(self.tokens_N), change(self.positions_N), self.n_positions, sentences)


class PackedSize(NamedTuple):
    """What all packed batches of a training have in common, so that all shapes in it are the same."""

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


class Batch(NamedTuple):
    """What one forward and backward pass is computed from."""

    source: Rows
    inputs: Rows
    """The targets shifted right, BEGIN_ID first (§3.1)."""
    targets_N: Tensor
    """What each row of `inputs` is to predict; PAD_ID where nothing counts."""

    @classmethod
    def in_grid(cls, source_BS: Tensor, target_BT: Tensor, dtype: torch.dtype) -> "Batch":
        """Lays out token ids, padded with PAD_ID, for products in `dtype`; targets end with END_ID."""
        inputs = grid(shift_right(target_BT), dtype)
        targets_N = F.pad(target_BT.flatten(), (0, len(inputs.tokens_N) - target_BT.numel()), value=PAD_ID)
        return cls(grid(source_BS, dtype), inputs, targets_N)

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


def grid(tokens_BL: Tensor, dtype: torch.dtype) -> Rows:
    """Lays out token ids, padded with PAD_ID, whose padding no query sees, for products in `dtype`."""
    padding_B11L = (tokens_BL == PAD_ID)[:, None, None]
    position_BL = torch.arange(tokens_BL.shape[1], device=tokens_BL.device).expand(tokens_BL.shape)
    # On a GPU, asking whether there is any padding would make the host wait.
    hides = tokens_BL.device.type != "cpu" or bool(padding_B11L.any())
    batch, length = tokens_BL.shape
    sentences = Grid(batch, length, hiding(padding_B11L, dtype) if hides else None)
    tokens_N, positions_N = (filled(ids_BL.flatten(), dtype) for ids_BL in (tokens_BL, position_BL))
    return Rows(tokens_N, positions_N, length, sentences)


def hiding(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the bias that is -inf where `hidden` is True and 0 elsewhere."""
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, -math.inf)


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
    return Rows(tokens_N, positions_N, size.n_positions, Packed(offsets.int(), size.longest))
