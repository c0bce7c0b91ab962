"""Plans an epoch: the pairs of each update, and the order of updates (paper §5.1).

The plan is a pure function of lengths, seed, epoch and budget; it does not depend on the number of workers. An update
is a fixed number of micro-batches, each computed by one worker. Pairs of similar length share a micro-batch, which
keeps padding low.

    plan = plan_epoch(source_lengths, target_lengths, TrainingSettings(), epoch=0)
    for update in range(len(plan)):
        for rows in plan[update]: ...
"""

import hashlib
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.settings import TrainingSettings

Integers = NDArray[Any]
BUDGET_TOLERANCE = 0.1
"""Largest relative difference between the budget and the mean size of an update."""
BAND_RUNS = 4
"""Minimum number of full micro-batches per band of target lengths."""
PAIRS_QUANTILE = 0.95
"""This percentile of pairs per micro-batch, if cut by tokens only, limits the pairs of a micro-batch."""
FEW_PAIRS = 200
"""Micro-batches of up to this many pairs are never split."""
BLOCK_PAIRS = 1_000_000
"""Pairs processed at a time, to bound the memory of intermediate results."""


@dataclass(frozen=True)
class EpochPlan:
    """The updates of an epoch: `plan[update]` lists the row numbers of its micro-batches."""

    rows: Integers
    """All rows, in the order of micro-batches."""
    bounds: Integers
    """Start of each micro-batch in `rows`, then the end of the last."""
    dealt: Integers
    """The micro-batches in the order of updates."""
    micro_batches: int
    """Micro-batches per update; the last update may have fewer."""
    source_tokens: Integers
    """Source tokens of each update, without padding."""
    target_tokens: Integers
    """Target tokens of each update, without padding."""
    computed_tokens: Integers
    """Source and target tokens of each update, including padding."""
    real_tokens: Integers
    """Columns (source, target): tokens of each micro-batch without padding, in the order of `bounds`."""
    padded_tokens: Integers
    """The same with padding."""

    def __len__(self) -> int:
        """Returns the number of updates."""
        return -(-len(self.dealt) // self.micro_batches)

    def __getitem__(self, update: int) -> list[Integers]:
        """Returns the rows of each micro-batch of an update, from 0. Raises IndexError past the end."""
        if not 0 <= update < len(self):
            raise IndexError(f"update {update} of a plan of {len(self)}")
        first = update * self.micro_batches
        return [self._micro_batch(number) for number in self.dealt[first : first + self.micro_batches]]

    def _micro_batch(self, number: int) -> Integers:
        return self.rows[self.bounds[number] : self.bounds[number + 1]]

    @property
    def arrays(self) -> dict[str, Integers]:
        """All arrays by field name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "micro_batches"}

    def sha256(self) -> str:
        """Returns a hash of the arrays; equal plans have equal hashes."""
        digest = hashlib.sha256()
        for name, array in self.arrays.items():
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def padding_fraction(self) -> float:
        """Share of padding among all computed tokens."""
        return 1 - float(self.source_tokens.sum() + self.target_tokens.sum()) / float(self.computed_tokens.sum())

    @property
    def largest(self) -> list[Integers]:
        """Rows of the micro-batches that need the most memory.

        These have the most padded tokens on either side (activations; logits, on the target side) or the most
        query-key pairs.
        """
        source, target = self.padded_tokens.T.astype(np.float64)
        attended = (source * source + target * target + source * target) / np.diff(self.bounds)
        numbers = [int(size.argmax()) for size in (source, target, attended)]
        return [self._micro_batch(number) for number in dict.fromkeys(numbers)]


def plan_epoch(source_lengths: Integers, target_lengths: Integers, settings: TrainingSettings, epoch: int) -> EpochPlan:
    """Plans each pair once: permutes, sorts by length, cuts into micro-batches, and deals these shuffled to updates.

    Lengths are in tokens including END_ID, one per pair. `settings.budget_tokens` bounds both the source and the target
    tokens of an update. A micro-batch holds at most its share on either side, unless a single pair is longer, and at
    most as many pairs as `micro_batch_bounds` allows. Every epoch has the same number of updates. Raises UserError if
    there is no pair, or if the fuller side of an update misses the budget by more than 10% on average (ignoring the
    last update, which may be short).
    """
    if not len(source_lengths):
        raise UserError("the training split is empty: there is nothing to train on; check the cleaning's report")
    random = np.random.default_rng([settings.seed, epoch])
    rows = random.permutation(len(source_lengths)).astype(np.int32)
    rows = by_length(source_lengths, target_lengths, rows, settings.micro_batch_tokens)
    source, target = source_lengths[rows], target_lengths[rows]
    bounds = micro_batch_bounds(source, target, settings.micro_batch_tokens)
    starts = bounds[:-1]
    dealt = random.permutation(len(starts))

    # In the dtype of the lengths, since conversion would copy them all.
    sums = [np.add.reduceat(side, starts, dtype=side.dtype) for side in (source, target)]
    real_tokens = np.stack(sums, axis=1).astype(np.int64)
    longest = np.stack((np.maximum.reduceat(source, starts), np.maximum.reduceat(target, starts)), axis=1)
    padded_tokens = longest.astype(np.int64) * np.diff(bounds)[:, None]
    updates = np.arange(0, len(dealt), settings.micro_batches)
    source_tokens, target_tokens = np.add.reduceat(real_tokens[dealt], updates).T
    computed_tokens = np.add.reduceat(padded_tokens.sum(axis=1)[dealt], updates)
    plan = EpochPlan(
        rows=rows,
        bounds=bounds,
        dealt=dealt,
        micro_batches=settings.micro_batches,
        source_tokens=source_tokens,
        target_tokens=target_tokens,
        computed_tokens=computed_tokens,
        real_tokens=real_tokens,
        padded_tokens=padded_tokens,
    )
    _check_budget(plan, settings.budget_tokens)
    return plan


def by_length(source_lengths: Integers, target_lengths: Integers, rows: Integers, limit_tokens: int) -> Integers:
    """Sorts rows so that neighbours have similar lengths: by bands of target lengths, then source, then target length.

    A band spans enough target lengths to fill at least four micro-batches. Narrower bands mix sources of all lengths in
    a micro-batch, wider ones targets (Multi30k at 4,096 tokens: 4.7% padding; 5.4% with one band per target length).
    Source lengths alternately fall and rise from band to band, so that a micro-batch across a border has similar
    sources too. The sort is stable. It needs 12 n bytes for n rows.
    """
    blocks = [slice(begin, begin + BLOCK_PAIRS) for begin in range(0, len(rows), BLOCK_PAIRS)]
    span, n_lengths = (
        1 + max(int(side[rows[block]].max()) for block in blocks) for side in (source_lengths, target_lengths)
    )
    tokens = np.zeros(n_lengths)
    for block in blocks:
        source, target = source_lengths[rows[block]], target_lengths[rows[block]]
        tokens += np.bincount(target, weights=np.maximum(source, target), minlength=n_lengths)
    band_of_length, band, held_tokens = np.zeros(n_lengths, np.int64), 0, 0.0
    for length, added_tokens in enumerate(tokens):
        band_of_length[length] = band
        held_tokens += added_tokens
        if held_tokens >= BAND_RUNS * limit_tokens:
            band, held_tokens = band + 1, 0.0
    # A key of two parts: the order, below 2^30 for lengths up to LONGEST_TOKENS, and the row, for stability.
    keys = np.empty(len(rows), np.int64)
    for block in blocks:
        source, target = source_lengths[rows[block]], target_lengths[rows[block]]
        band_of_row = band_of_length[target]
        source_key = np.where(band_of_row % 2, source, span - 1 - source)
        keys[block] = (band_of_row * span + source_key) * n_lengths + target
        keys[block] = keys[block] * len(rows) + np.arange(block.start, block.start + len(source))
    keys.sort()
    keys %= len(rows)
    return rows[keys]


def micro_batch_bounds(source_lengths: Integers, target_lengths: Integers, limit_tokens: int) -> Integers:
    """Returns bounds of consecutive micro-batches of at most `limit_tokens`; those with the most pairs are split.

    On GPUs, attention kernels launch as many blocks for every micro-batch as the one with the most pairs needs. The
    limit is the 95th percentile of pairs when cutting by tokens only, or 200 if that is larger. With WMT14's lengths
    and 3,125 tokens, that is 208 pairs instead of 1,071, for 2% more micro-batches.
    """
    bounds = cut(source_lengths, target_lengths, limit_tokens)
    most_pairs = max(FEW_PAIRS, int(np.quantile(np.diff(bounds), PAIRS_QUANTILE)))
    return cut(source_lengths, target_lengths, limit_tokens, most_pairs)


def cut(
    source_lengths: Integers, target_lengths: Integers, limit_tokens: int, limit_pairs: int | None = None
) -> Integers:
    """Returns bounds of consecutive runs with at most `limit_tokens` on either side; a longer pair is its own run."""
    n_pairs, bounds = len(source_lengths), [0]
    block_pairs = max(BLOCK_PAIRS, limit_tokens + 1)  # more than a run can hold
    while (first := bounds[-1]) < n_pairs:
        block = slice(first, first + block_pairs)
        source_ends, target_ends = (np.cumsum(side[block], dtype=np.int64) for side in (source_lengths, target_lengths))
        begin, source_before, target_before = 0, 0, 0
        while begin < len(source_ends):
            end = min(
                int(source_ends.searchsorted(source_before + limit_tokens, side="right")),
                int(target_ends.searchsorted(target_before + limit_tokens, side="right")),
                begin + (limit_pairs or n_pairs),
            )
            end = max(end, begin + 1)
            if end == len(source_ends) and block.stop < n_pairs:
                break  # the run may continue in the next block, which starts with it
            bounds.append(first + end)
            begin, source_before, target_before = end, int(source_ends[end - 1]), int(target_ends[end - 1])
    return np.array(bounds)


def _check_budget(plan: EpochPlan, budget_tokens: int) -> None:
    full = len(plan.dealt) // plan.micro_batches
    mean_tokens = float(np.maximum(plan.source_tokens, plan.target_tokens)[: full or None].mean())
    if abs(mean_tokens / budget_tokens - 1) > BUDGET_TOLERANCE:
        limit_tokens = budget_tokens // plan.micro_batches
        all_but_last = plan.real_tokens.max(axis=1)[:-1]
        if len(all_but_last) and abs(all_but_last.mean() / limit_tokens - 1) > BUDGET_TOLERANCE:
            cause = f"the sentences are too long for micro-batches of {limit_tokens} tokens"
            fewer = f", or lower micro_batches (now {plan.micro_batches})" if plan.micro_batches > 1 else ""
            remedy = f"raise budget_tokens{fewer}"
        else:
            cause, remedy = f"{len(plan.rows):,} pairs are too few for one update", "lower budget_tokens"
        raise UserError(
            f"an update would hold {mean_tokens:.0f} tokens on its fuller side, more than {BUDGET_TOLERANCE:.0%} off "
            f"budget_tokens = {budget_tokens}: {cause}; {remedy}"
        )
