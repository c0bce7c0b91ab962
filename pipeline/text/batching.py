"""Plans an epoch: the pairs of each update, and the order of updates (paper §5.1).

The plan is a pure function of lengths, seed, epoch and budget; no device, memory or number of workers decides it. It
cuts the text into units, small groups of pairs of similar length, so that little padding is computed. Consecutive units
are an update, of about one length like the paper's, unless a profile mixes them (docs/batches.md).

    plan = plan_epoch(source_lengths, target_lengths, TrainingSettings(), epoch=0)
    for update in range(len(plan)):
        for rows in plan[update]: ...
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.settings import TrainingSettings

Integers = NDArray[Any]
BUDGET_TOLERANCE = 0.1
"""Largest relative difference between the budget and the mean size of an update."""
SHARES = 8
"""Numbers of workers that divide this have shares of about equal size."""


@dataclass(frozen=True)
class EpochPlan:
    """The updates of an epoch: `plan[update]` lists the row numbers of its units, the shortest sources about first."""

    rows: Integers
    """All rows, in the order of units."""
    bounds: Integers
    """Start of each unit in `rows`, then the end of the last."""
    dealt: Integers
    """The units of each update: (updates, units). Within an update, higher numbers are of longer sources, about."""
    real_tokens: Integers
    """Columns (source, target): tokens of each unit without padding, in the order of `bounds`."""
    padded_tokens: Integers
    """The same with padding."""

    def __len__(self) -> int:
        """Returns the number of updates."""
        return len(self.dealt)

    def __getitem__(self, update: int) -> list[Integers]:
        """Returns the rows of each unit of an update, from 0. Raises IndexError past the end."""
        return [self.unit(unit) for unit in np.sort(self.dealt[update])]

    def unit(self, unit: int) -> Integers:
        """Returns the rows of a unit."""
        return self.rows[self.bounds[unit] : self.bounds[unit + 1]]

    def sha256(self) -> str:
        """Returns a hash of the plan; equal plans have equal hashes."""
        digest = hashlib.sha256()
        for array in (self.rows, self.bounds, self.dealt):
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def padding_fraction(self) -> float:
        """Share of padding among all tokens, if every unit is padded to its longest sentence."""
        return 1 - float(self.real_tokens.sum()) / float(self.padded_tokens.sum())


def plan_epoch(source_lengths: Integers, target_lengths: Integers, settings: TrainingSettings, epoch: int) -> EpochPlan:
    """Plans each pair once: permutes, sorts by length, cuts into units of like size, and deals these.

    Lengths are in tokens including END_ID, one per pair. The fuller side of the text has `settings.budget_tokens` an
    update on average; an update that has more of the other side exceeds that a little. Every epoch has the same number
    of updates. Raises UserError if there is no pair, or if the budget is missed by more than 10%.
    """
    if not len(source_lengths):
        raise UserError("the training split is empty: there is nothing to train on; check the cleaning's report")
    fuller_tokens = max(int(side.sum(dtype=np.int64)) for side in (source_lengths, target_lengths))
    n_updates = max(1, round(fuller_tokens / settings.budget_tokens))
    missed = abs(fuller_tokens / n_updates / settings.budget_tokens - 1) > BUDGET_TOLERANCE
    if missed or n_updates * settings.units > len(source_lengths):
        raise UserError(
            f"{len(source_lengths):,} pairs of {fuller_tokens:,} tokens on the fuller side do not fill updates of "
            f"budget_tokens = {settings.budget_tokens}; lower budget_tokens"
        )
    rows, dealt = deal(len(source_lengths), n_updates, settings, epoch)
    if settings.mixes_lengths:
        rows = by_length(source_lengths, target_lengths, rows)
    else:
        rows = by_update(source_lengths, target_lengths, rows, n_updates)
    source, target = source_lengths[rows], target_lengths[rows]
    bounds = equal_bounds(source, target, n_updates * settings.units)
    starts = bounds[:-1]

    # In the dtype of the lengths, since conversion would copy them all.
    sums = [np.add.reduceat(side, starts, dtype=side.dtype) for side in (source, target)]
    longest = [np.maximum.reduceat(side, starts) for side in (source, target)]
    real_tokens = np.stack(sums, axis=1).astype(np.int64)
    return EpochPlan(
        rows=rows,
        bounds=bounds,
        dealt=in_shares(dealt, real_tokens),
        real_tokens=real_tokens,
        padded_tokens=np.stack(longest, axis=1).astype(np.int64) * np.diff(bounds)[:, None],
    )


def deal(n_pairs: int, n_updates: int, settings: TrainingSettings, epoch: int) -> tuple[Integers, Integers]:
    """Returns an epoch's permutation of pairs, and the units of each update: (updates, units).

    `settings.units` consecutive units are an update, and updates come in random order: by approximate length (§5.1).
    With `settings.mixes_lengths`, an update gets a random unit of each of as many ranges of lengths.
    """
    random = np.random.default_rng([settings.seed, epoch])
    rows, units = random.permutation(n_pairs).astype(np.int32), np.arange(settings.units * n_updates)
    if settings.mixes_lengths:
        return rows, random.permuted(units.reshape(settings.units, n_updates), axis=1).T
    return rows, random.permutation(units.reshape(n_updates, settings.units))


def in_shares(dealt: Integers, real_tokens: Integers) -> Integers:
    """Reorders each update's units so that every n-th are about as many tokens on either side, for n = 2, 4 or 8.

    Leaves them as they are if their number is no multiple of eight.

    Eight shares in turn get the unit that leaves their fuller side least full; one of each eighth of the sizes a round.
    """
    n_updates, n_units = dealt.shape
    if n_units % SHARES:
        return dealt
    updates, tokens = np.arange(n_updates), real_tokens[dealt]
    by_size = np.argsort(-tokens.max(axis=2), axis=1, kind="stable").reshape(n_updates, SHARES, -1)
    held, ordered = np.zeros((n_updates, SHARES, 2), np.int64), np.empty_like(dealt)
    for number in range(n_units // SHARES):
        taken = np.zeros((n_updates, SHARES), np.int64)
        for unit in by_size[:, :, number].T:
            added = tokens[updates, unit]
            share = ((held + added[:, None]).max(axis=2) + taken).argmin(axis=1)
            held[updates, share] += added
            taken[updates, share] = np.iinfo(np.int32).max
            ordered[updates, number * SHARES + share] = dealt[updates, unit]
    return ordered


def equal_bounds(source_lengths: Integers, target_lengths: Integers, n_runs: int) -> Integers:
    """Returns bounds of `n_runs` consecutive runs with about equally many tokens, source and target together.

    Each has a pair, so there must be as many.
    """
    tokens = np.add(source_lengths, target_lengths, dtype=np.int64)
    middles = 2 * np.cumsum(tokens) - tokens  # a pair belongs to the run that has more of it
    inner = middles.searchsorted(np.arange(1, n_runs) * (2 * int(tokens.sum()) / n_runs))
    number = np.arange(1, n_runs)
    inner = np.minimum(np.maximum.accumulate(np.maximum(inner, 1) - number) + number, len(tokens) - n_runs + number)
    return np.concatenate(([0], inner, [len(tokens)]))


def by_update(source_lengths: Integers, target_lengths: Integers, rows: Integers, n_updates: int) -> Integers:
    """Sorts rows by the length of source and target together, and those of an update by source, then target length.

    By the length of one side alone, the other side of an update would be fuller or emptier than the budget.
    """
    rows = rows[np.argsort(source_lengths[rows] + target_lengths[rows], kind="stable")]
    source, target = source_lengths[rows], target_lengths[rows]
    update_of_row = np.repeat(np.arange(n_updates), np.diff(equal_bounds(source, target, n_updates)))
    return rows[np.lexsort((target, source, update_of_row))]


def by_length(source_lengths: Integers, target_lengths: Integers, rows: Integers) -> Integers:
    """Sorts rows so that neighbours have similar lengths: by target, then source length. The sort is stable.

    Source lengths alternately fall and rise from one target length to the next, so that a unit across a border has
    similar sources, too: without, twice as much is padding.
    """
    source, target = source_lengths[rows], target_lengths[rows]
    return rows[np.lexsort((np.where(target % 2, source, -source), target))]


def cut(source_lengths: Integers, target_lengths: Integers, limit_tokens: int) -> Integers:
    """Returns bounds of consecutive runs with at most `limit_tokens` on either side; a longer pair is its own run."""
    ends, bounds = np.cumsum([source_lengths, target_lengths], axis=1, dtype=np.int64), [0]
    before = np.zeros(2, np.int64)
    while (begin := bounds[-1]) < len(source_lengths):
        sides = zip(ends, before, strict=True)
        end = min(int(side.searchsorted(held + limit_tokens, side="right")) for side, held in sides)
        bounds.append(max(end, begin + 1))
        before = ends[:, bounds[-1] - 1]
    return np.array(bounds)
