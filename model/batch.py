"""Batches as matrices of rows, one row per token, and their layouts.

    batch = Batch.padded(source_BS, target_BT, torch.float32).keyed(pair_keys(seed, update, pairs_B))
    hidden_ND = model(batch.source, batch.inputs)            # row n predicts batch.targets_N[n]

Everything but attention treats tokens alike and works on x_ND. Only attention needs the layout, which knows the rows of
each sentence (paper §3.2); in training it has each row's key for dropout, too (`model.dropout`). docs/batches.md shows
one batch in two layouts:

    PaddedLayout     every sentence is padded to the longest, so heads are views. Used in validation and search.
    BlocksLayout     several such blocks, one after another, for one pass. Used on CPUs.
    PackedLayout     sentences are concatenated without padding, for the GPU's kernels (`model.kernels`).

All packed batches of a run have equal shapes; their leftover rows, after the last sentence, do not enter the loss.

Shapes: N query rows and M key rows of the whole batch; B sentences, L query length, M key length, S source length, T
target length, D = d_model, H heads, K = d_k, V = d_v, X any width.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from model.config import BEGIN_ID, PAD_ID
from model.cpu import pad_rows, to_fastest_dtype
from model.dropout import position_keys, row_keys
from model.kernels.attention import packed_attention

ROWS_MULTIPLE = 64
"""The number of rows of a packed batch is a multiple of this (`model.kernels.attention`)."""


class AttentionFunction(Protocol):
    """Attention within each head, of padded rows (`model.attention`), and its reach in packed ones."""

    reach: tuple[int, int] | None

    def __call__(
        self, q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, bias: Tensor | None, row_keys_BL: Tensor | None
    ) -> Tensor:
        """Returns x_BHLV."""


def masking_bias(masked: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the attention bias: -inf where `masked` is True, else 0."""
    return torch.zeros(masked.shape, dtype=dtype, device=masked.device).masked_fill_(masked, -math.inf)


def map_tensors(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Applies `function` to every tensor of nested (named) tuples."""
    if isinstance(value, tuple):
        parts = [map_tensors(function, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return function(value) if isinstance(value, Tensor) else value


class PaddedKeys(NamedTuple):
    """Keys and values by head, and their attention bias; None if nothing is masked."""

    k_BHMK: Tensor
    v_BHMV: Tensor
    bias: Tensor | None


class PackedKeys(NamedTuple):
    """Keys and values by head, and the layout of their rows."""

    k_MHK: Tensor
    v_MHV: Tensor
    layout: "PackedLayout"


class Layout(Protocol):
    """The mapping from rows to sentences: padded, packed, or one position of beam search (`model.decoder`)."""

    @property
    def row_keys(self) -> Tensor | None:
        """keys_N of the rows, for dropout (`model.dropout`); None outside training."""

    def keys(self, k_MX: Tensor, v_MX: Tensor, n_heads: int) -> Any:
        """Splits projected keys and values into heads, for `attend` of the same kind of layout."""

    def attend(self, q_NX: Tensor, keys: Any, function: AttentionFunction) -> Tensor:
        """Attends from each row to its sentence's keys in each head, and concatenates the heads: x_NX."""


class PaddedLayout(NamedTuple):
    """Sentence b occupies `length` rows from b·length on; rows past its end are padding."""

    batch: int
    length: int
    bias: Tensor | None
    """Attention bias for these rows as keys: -inf where masked, else 0; broadcastable to (B, H, query length, L). None
    if nothing is masked. Adding a bias takes a sixth of the time of `masked_fill`."""
    row_keys: Tensor | None = None

    def by_sentence(self, x_NX: Tensor) -> Tensor:
        """Drops leftover rows: x_BLX."""
        return x_NX[: self.batch * self.length].view(self.batch, self.length, -1)

    @property
    def row_keys_by_sentence(self) -> Tensor | None:
        """The rows' keys_BL, if they have any."""
        return None if self.row_keys is None else self.by_sentence(self.row_keys).squeeze(2)

    def by_head(self, x_NX: Tensor, n_heads: int) -> Tensor:
        """Drops leftover rows and splits the columns into heads: x_BHLK."""
        return x_NX[: self.batch * self.length].view(self.batch, self.length, n_heads, -1).transpose(1, 2)

    def keys(self, k_MX: Tensor, v_MX: Tensor, n_heads: int) -> PaddedKeys:
        """Splits projected keys and values into heads."""
        return PaddedKeys(self.by_head(k_MX, n_heads), self.by_head(v_MX, n_heads), self.bias)

    def attend(self, q_NX: Tensor, keys: PaddedKeys, function: AttentionFunction) -> Tensor:
        """Attends within each head, in the dtype of the keys, and concatenates the heads: x_NX."""
        n_queries = q_NX.numel()
        k_BHMK, v_BHMV = to_fastest_dtype(keys.k_BHMK, n_queries), to_fastest_dtype(keys.v_BHMV, n_queries)
        q_BHLK = self.by_head(q_NX, k_BHMK.shape[1])
        if q_BHLK.dtype != k_BHMK.dtype:  # the product would copy non-contiguous heads anyway
            q_BHLK = q_BHLK.to(k_BHMK.dtype, memory_format=torch.contiguous_format)
        x_BLHV = function(q_BHLK, k_BHMK, v_BHMV, keys.bias, self.row_keys_by_sentence).transpose(1, 2)
        x_NX = x_BLHV.reshape(-1, x_BLHV.shape[2] * x_BLHV.shape[3]).to(q_NX.dtype)
        left_over = len(q_NX) - len(x_NX)
        return F.pad(x_NX, (0, 0, 0, left_over)) if left_over else x_NX

    def causal(self, x_ND: Tensor) -> "PaddedLayout":
        """Masks later positions (§3.2.3), and so padding from every real token. The bias has the dtype of `x_ND`."""
        later_TT = torch.ones(self.length, self.length, dtype=torch.bool, device=x_ND.device).triu(1)
        return self._replace(bias=masking_bias(later_TT, x_ND.dtype) if self.length > 1 else None)


class BlocksLayout(NamedTuple):
    """Blocks of padded sentences, one after another."""

    blocks: tuple[PaddedLayout, ...]
    row_keys: Tensor | None = None

    def keys(self, k_MX: Tensor, v_MX: Tensor, n_heads: int) -> list[PaddedKeys]:
        """Splits projected keys and values into blocks and heads."""
        of_blocks = zip(self.blocks, self._in_blocks(k_MX), self._in_blocks(v_MX), strict=False)
        return [block.keys(k_LX, v_LX, n_heads) for block, k_LX, v_LX in of_blocks]

    def attend(self, q_NX: Tensor, keys: list[PaddedKeys], function: AttentionFunction) -> Tensor:
        """Attends within each head, block by block, and concatenates the heads: x_NX."""
        *q_blocks, left_over_NX = self._in_blocks(q_NX)
        row_keys = [None] * len(keys) if self.row_keys is None else self._in_blocks(self.row_keys)
        blocks = [block._replace(row_keys=keys_N) for block, keys_N in zip(self.blocks, row_keys, strict=False)]
        of_blocks = zip(blocks, q_blocks, keys, strict=True)
        x_blocks = [block.attend(q_LX, block_keys, function) for block, q_LX, block_keys in of_blocks]
        return torch.cat((*x_blocks, x_blocks[0].new_zeros(len(left_over_NX), x_blocks[0].shape[1])))

    def _in_blocks(self, x_NX: Tensor) -> Sequence[Tensor]:
        """Splits rows into those of each block and the leftover ones."""
        sizes = [block.batch * block.length for block in self.blocks]
        return x_NX.split([*sizes, len(x_NX) - sum(sizes)])

    def causal(self, x_ND: Tensor) -> "BlocksLayout":
        """Masks later positions (§3.2.3)."""
        return self._replace(blocks=tuple(block.causal(x_ND) for block in self.blocks))


class PackedLayout(NamedTuple):
    """Sentence b occupies rows offsets[b] to offsets[b + 1]."""

    offsets: Tensor
    """int32, (B + 1,)."""
    sentences_N: Tensor
    """int32: the sentence of each row; leftover rows are in one without rows."""
    is_causal: bool = False
    """Whether later positions are masked when these rows are keys (§3.2.3)."""
    row_keys: Tensor | None = None

    def keys(self, k_MX: Tensor, v_MX: Tensor, n_heads: int) -> PackedKeys:
        """Splits projected keys and values into heads."""
        return PackedKeys(k_MX.unflatten(-1, (n_heads, -1)), v_MX.unflatten(-1, (n_heads, -1)), self)

    def attend(self, q_NX: Tensor, keys: PackedKeys, function: AttentionFunction) -> Tensor:
        """Attends within each head and concatenates the heads: x_NX. Raises ValueError if the function cannot."""
        if function.reach is None:
            raise ValueError(f"{type(function).__name__} computes padded batches only")
        before, after = function.reach[0], 0 if keys.layout.is_causal else function.reach[1]
        q_NHK = q_NX.unflatten(-1, (keys.k_MHK.shape[1], -1))
        rows = self.sentences_N, keys.layout.sentences_N, self.offsets, keys.layout.offsets
        return packed_attention(q_NHK, keys.k_MHK, keys.v_MHV, *rows, before, after)[0].flatten(1)

    def causal(self, x_ND: Tensor) -> "PackedLayout":
        """Masks later positions (§3.2.3)."""
        return self._replace(is_causal=True)


class EncoderOutput(NamedTuple):
    """The encoder's last hidden states and their layout."""

    x_ND: Tensor
    layout: Layout


class Rows(NamedTuple):
    """One side (source or target) of a batch."""

    tokens_N: Tensor
    positions_N: Tensor
    """Position of each token in its sentence, from 0."""
    n_positions: int
    """Greater than every position."""
    layout: PaddedLayout | BlocksLayout | PackedLayout

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

    @classmethod
    def in_blocks(cls, of_blocks: Sequence[Tensor], dtype: torch.dtype) -> "Rows":
        """Lays out several matrices tokens_BL, each padded to its own length, one after another."""
        sides = [cls.padded(tokens_BL, torch.float32) for tokens_BL in of_blocks]  # whose rows are not padded
        tokens_N = pad_rows(torch.cat([rows.tokens_N for rows in sides]), dtype)
        positions_N = pad_rows(torch.cat([rows.positions_N for rows in sides]), dtype)
        blocks = map_tensors(lambda bias: bias.to(dtype), tuple(rows.layout for rows in sides))
        return cls(tokens_N, positions_N, max(rows.n_positions for rows in sides), BlocksLayout(blocks))

    def keyed(self, pair_keys_B: Tensor, side: int) -> "Rows":
        """Gives each row its key for dropout; `side` is 0 or 1 (source or target)."""
        sentence_N = (self.positions_N == 0).cumsum(0).clamp_(max=len(pair_keys_B)) - 1  # leftover rows take any key
        # By index_select: indexing with [] starts OpenMP's threads, and those of the training thread then sleep.
        of_positions = position_keys(self.n_positions, side, self.positions_N.device).index_select(0, self.positions_N)
        keys_N = row_keys(pair_keys_B.index_select(0, sentence_N), of_positions)
        return self._replace(layout=self.layout._replace(row_keys=keys_N))

    def by_sentence(self) -> tuple[Tensor, Tensor | None]:
        """Returns tokens_BL of padded rows, and keys_BL for dropout or None. Raises ValueError if they are packed."""
        if not isinstance(self.layout, PaddedLayout):
            raise ValueError("only the Transformer supports packed batches; use Batch.padded")
        return self.layout.by_sentence(self.tokens_N).squeeze(2), self.layout.row_keys_by_sentence

    def rows_of(self, x_BLX: Tensor) -> Tensor:
        """Inverse of `by_sentence` for hidden states; leftover rows are zero: x_NX."""
        x_NX = x_BLX.flatten(0, 1)
        return F.pad(x_NX, (0, 0, 0, len(self.tokens_N) - len(x_NX)))


class PackedSize(NamedTuple):
    """The shape of all packed batches of a run."""

    n_rows: int
    """Rows per side."""
    n_sentences: int
    """Most sentences, and one without rows."""
    n_positions: int
    """At least the length of every sentence."""

    @classmethod
    def of(cls, most_tokens: int, most_pairs: int, longest: int) -> "PackedSize":
        """Returns the size for at most `most_tokens` a side, `most_pairs` pairs and `longest` tokens a sentence."""
        return cls(-(-most_tokens // ROWS_MULTIPLE) * ROWS_MULTIPLE, most_pairs + 1, longest)


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
    def in_blocks(cls, blocks: Sequence[tuple[Tensor, Tensor]], dtype: torch.dtype) -> "Batch":
        """Lays out several pairs (source_BS, target_BT), each as `padded` does, for one pass."""
        inputs = Rows.in_blocks([shift_right(target_BT) for _, target_BT in blocks], dtype)
        targets_N = pad_rows(torch.cat([target_BT.flatten() for _, target_BT in blocks]), dtype)
        return cls(Rows.in_blocks([source_BS for source_BS, _ in blocks], dtype), inputs, targets_N)

    @classmethod
    def packed(cls, source_BS: Tensor, target_BT: Tensor, size: PackedSize) -> "Batch":
        """Packs token ids padded with PAD_ID, on the host. Targets end with END_ID.

        Raises ValueError if they exceed `size`.
        """
        source, _ = _pack(source_BS, size)
        target, layout = _pack(target_BT, size)
        inputs_N = target.tokens_N.roll(1).index_fill_(0, layout.offsets[: len(target_BT)].long(), BEGIN_ID)
        return cls(source, target._replace(tokens_N=inputs_N), target.tokens_N)

    def keyed(self, pair_keys_B: Tensor) -> "Batch":
        """Gives each row its key for dropout, from those of the sentence pairs (`model.dropout`)."""
        return self._replace(source=self.source.keyed(pair_keys_B, 0), inputs=self.inputs.keyed(pair_keys_B, 1))

    def map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """Applies `function` to every tensor."""
        mapped: Batch = map_tensors(function, self)
        return mapped

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


def _pack(tokens_BL: Tensor, size: PackedSize) -> tuple[Rows, PackedLayout]:
    """Packs one side, with its layout. Leftover rows belong to a sentence without rows, so they see nothing."""
    real_BL, (n_pairs, longest) = tokens_BL != PAD_ID, tokens_BL.shape
    sentences_N, positions_N = real_BL.nonzero(as_tuple=True)
    left_over = size.n_rows - len(sentences_N)
    if left_over < 0 or longest > size.n_positions or n_pairs >= size.n_sentences:
        raise ValueError(f"{n_pairs} pairs of at most {longest} tokens do not fit into a batch of {size}")
    offsets = F.pad(real_BL.sum(dim=1, dtype=torch.int32), (1, size.n_sentences - n_pairs)).cumsum(0, dtype=torch.int32)
    tokens_N, positions_N, sentences_N = (
        F.pad(values, (0, left_over), value=value)
        for values, value in (
            (tokens_BL.masked_select(real_BL), PAD_ID),
            (positions_N, 0),
            (sentences_N.int(), n_pairs),
        )
    )
    layout = PackedLayout(offsets, sentences_N)
    return Rows(tokens_N, positions_N, size.n_positions, layout), layout
