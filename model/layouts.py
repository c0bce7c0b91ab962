"""The layouts of a batch: which rows form a sentence, seen by attention alone (paper §3.2).

    PaddedLayout     every sentence is padded to the longest, so heads are views. Used in validation and search.
    BlocksLayout     several such blocks, one after another, for one pass. Used on CPUs.
    PackedLayout     sentences are concatenated without padding, for the GPU's kernels (`model.kernels`).

Shapes: B batch, L query length, M key length, D = d_model, H heads, K = d_k, V = d_v, X any width. Without B: N query
rows and M key rows of the whole batch (`model.batch`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from model.cpu import to_fastest_dtype
from model.kernels.attention import packed_attention


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
