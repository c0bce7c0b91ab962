"""The updates of a run in order, read and laid out in a background thread.

Another thread plans the next epoch, because a plan takes seconds for WMT14's pairs.

A worker's share of an update is every n-th unit. It computes its share in one pass, or in as many as its memory needs;
how units are put together changes no dropout mask (`model.dropout`), only the order of additions.

Shapes: B pairs, S source positions, T target positions.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from model.batch import Batch, PackedSize
from model.dropout import pair_keys
from model.flops import training_flop
from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.text.batching import EpochPlan, plan_epoch
from pipeline.text.encoding import EncodedSplit
from pipeline.training.workers import Workers, depth_first

AHEAD_UPDATES = 2
"""Number of updates read ahead."""
CPU_PASS_TOKENS = 4096
"""Tokens a side of a pass on a CPU; more are not faster."""
PADDED_PASSES = 8
"""Passes of an update whose batches are padded to their longest sentence, unless `pass_tokens` decides."""
COUNTED_PAIRS = 1 << 20
"""Pairs whose FLOP are counted at a time, so that counting needs little memory."""
Form = Literal["padded", "blocks", "packed"]
"""How a batch is laid out (`model.batch`)."""


class Part(NamedTuple):
    """A worker's share of an update, or a fixed part of it whose sums are added in order: a batch a pass."""

    number: int
    batches: list[Batch]


class Update(NamedTuple):
    """One worker's share of an update, with the size of the whole update."""

    mine: list[Part]
    """The parts that this worker computes."""
    source_tokens: int
    target_tokens: int
    computed_tokens: int
    """Source and target tokens, including padding."""


class Updates:
    """Reads a worker's share of the updates of a split.

    All ranks construct one. Raises UserError at every rank if the first plan misses the token budget
    (`pipeline.text.batching`) or differs between nodes.
    """

    def __init__(
        self,
        split: EncodedSplit,
        settings: TrainingSettings,
        workers: Workers,
        dtype: torch.dtype,
        form: Form = "padded",
        epoch: int = 0,
    ) -> None:
        """`dtype` is the dtype of products, and `epoch` the one to resume in; earlier ones are not planned."""
        self.split, self.settings, self.workers, self.dtype, self.form = split, settings, workers, dtype, form
        self._planner = ThreadPoolExecutor(max_workers=1)
        self._plans = {epoch: self._planner.submit(self._plan_of, epoch)}
        """By epoch: the plan last used, and the next."""
        with workers.raise_at_all_ranks():
            self._first = self._plans[epoch].result()
        if len(set(workers.gather_objects(self._first.sha256()))) > 1:
            raise UserError(
                f"the nodes plan epoch {epoch} differently; install the same versions of aiayn and numpy on all of them"
            )
        self.in_epoch = len(self._first)
        """Number of updates per epoch, the same in every epoch."""
        limit_tokens = settings.pass_tokens or (CPU_PASS_TOKENS if workers.device == "cpu" else settings.budget_tokens)
        self.n_passes = -(-settings.budget_tokens // (workers.size * limit_tokens))
        """Passes in which this worker computes its share of an update."""
        if form == "padded" and not settings.pass_tokens:  # so that a pass has sentences of like length
            self.n_passes = max(self.n_passes, min(PADDED_PASSES, -(-settings.units // workers.size)))
        self.compute_in(self.n_passes)
        self.waited_s = 0.0
        """Time for which `between` waited for the reader."""

    @cached_property
    def mean_flop(self) -> float:
        """FLOP of forward and backward of a mean update (`model.flops`), counted over an epoch, which has all pairs."""
        n_parts, sides = -(-len(self.split) // COUNTED_PAIRS), (self.split.source_lengths, self.split.target_lengths)
        parts = zip(*(np.array_split(side, n_parts) for side in sides), strict=True)
        return sum(training_flop(self.settings.model, *lengths) for lengths in parts) / self.in_epoch

    def divide(self) -> bool:
        """Doubles the number of passes; returns False if they cannot be divided."""
        if self.settings.exact_reduction or self.n_passes * self.workers.size >= self.settings.units:
            return False
        self.compute_in(2 * self.n_passes)
        return True

    def compute_in(self, n_passes: int) -> None:
        """Computes this worker's share of later updates in so many passes."""
        self.n_passes = n_passes
        dealt = self._first.dealt[:1]
        sizes = [(self._packed_size(rank), len(self._passes(dealt, rank))) for rank in range(self.workers.size)]
        self.packed_size = sizes[self.workers.rank][0]
        self._packed_tokens = sum(2 * size.n_rows * n_passes for size, n_passes in sizes if size)
        """Source and target tokens of an update's packed batches at all workers."""

    def _parts(self, dealt: NDArray[Any], rank: int) -> dict[int, list[NDArray[Any]]]:
        """Returns the units of each pass of a worker's parts of some updates, (updates, units), by number of part."""
        size, most = self.workers.size, self.settings.most_workers
        if self.settings.exact_reduction:
            return {number: [dealt[:, number::most]] for number in depth_first(range(rank, most, size))}
        mine = np.sort(dealt[:, rank::size], axis=1)  # so that each pass has like lengths
        return {rank: np.array_split(mine, self.n_passes, axis=1)}

    def _passes(self, dealt: NDArray[Any], rank: int) -> list[NDArray[Any]]:
        """Returns the units of each pass of a worker in some updates: (updates, units)."""
        return [units for passes in self._parts(dealt, rank).values() for units in passes if units.size]

    def _packed_size(self, rank: int) -> PackedSize | None:
        """Returns the size of a worker's packed batches, the largest of an epoch; rare larger ones are divided."""
        if self.form != "packed":
            return None
        # Where bits matter, the same epoch decides after every interruption.
        plan = self._plan_of(0) if self.settings.exact_reduction else self._first
        most_tokens, most_pairs = (
            max((int(of_units[units].sum(axis=1).max()) for units in self._passes(plan.dealt, rank)), default=1)
            for of_units in (plan.real_tokens, np.diff(plan.bounds))
        )
        return PackedSize.of(most_tokens, most_pairs, self.split.longest_tokens)

    def largest(self) -> list[Batch]:
        """Returns the passes that need the most memory.

        Packed ones all need the same: here are a full one and a single pair. Of others, those with the most padded
        tokens on either side or both, or the most query-key pairs. Blocks are those of an epoch. Where a whole pass is
        padded to its longest sentence, the units that meet in it matter more, and all epochs are searched.
        """
        plan, rank = self._first, self.workers.rank
        if self.form == "packed":
            units = [plan.unit(unit) for passes in self._passes(plan.dealt[:1], rank)[:1] for unit in passes[0]]
            return [*self._batches(units, 0), *self._batches([unit[:1] for unit in units[:1]], 0)]
        largest: list[tuple[int, int, list[int]]] = [(0, 0, [])] * 4
        rows: dict[tuple[int, ...], list[NDArray[Any]]] = {}
        n_epochs = -(-self.settings.updates // len(plan)) if self.form == "padded" else 1
        for epoch in range(n_epochs):
            plan = self._plan_of(epoch) if n_epochs > 1 else plan
            for passes in self._passes(plan.dealt, rank):
                lengths, tokens = self._padded(plan, passes)
                products = (tokens * lengths).sum(axis=(1, 2))
                sizes = np.column_stack((tokens.sum(axis=1), tokens.sum(axis=(1, 2)), products))
                for i, update in enumerate(sizes.argmax(axis=0)):
                    if sizes[update, i] > largest[i][0]:
                        largest[i] = int(sizes[update, i]), epoch, passes[update].tolist()
                        rows[epoch, *largest[i][2]] = [plan.unit(unit) for unit in passes[update]]
        chosen = dict.fromkeys((epoch, *units) for _, epoch, units in largest if units)
        return [batch for units in chosen for batch in self._batches(rows[units], 0)]

    def _padded(self, plan: EpochPlan, passes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns the length to which units of passes are padded and their padded tokens: (updates, units, sides)."""
        pairs = (plan.bounds[passes + 1] - plan.bounds[passes])[..., None]
        longest = plan.padded_tokens[passes] // pairs
        lengths = longest if self.form == "blocks" else longest.max(axis=1, keepdims=True)
        return lengths, lengths * pairs

    def between(self, first: int, last: int) -> Iterator[Update]:
        """Yields updates `first` to `last` - 1 of the run, from 0, reading ahead."""
        waiting: deque[Future[Update]] = deque()
        with ThreadPoolExecutor(max_workers=1, initializer=self.workers.use_device) as reader:
            try:
                for update in range(first, last):
                    epoch, position = divmod(update, self.in_epoch)
                    waiting.append(reader.submit(self._read, self._planned(epoch, last), position, update))
                    if len(waiting) > AHEAD_UPDATES:
                        yield self._wait_for(waiting.popleft())
                while waiting:
                    yield self._wait_for(waiting.popleft())
            finally:
                reader.shutdown(cancel_futures=True)

    def _wait_for(self, read: Future[Update]) -> Update:
        began_s = time.monotonic()
        update = read.result()
        self.waited_s += time.monotonic() - began_s
        return update

    def close(self) -> None:
        """Releases the plans, without waiting for one being computed."""
        self._planner.shutdown(wait=False, cancel_futures=True)
        self._plans.clear()

    def _batches(self, units: Sequence[NDArray[np.integer]], update: int) -> list[Batch]:
        """Reads the units of a pass, on the host, with the dropout of an update of the run; pinned for a GPU.

        The result is one batch, unless it exceeds the size of packed ones.
        """
        if not units:
            return []
        rows = np.concatenate(units)
        if self.packed_size:
            try:
                batch = Batch.packed(*self.split.batch(rows), self.packed_size)
            except ValueError:
                if len(rows) == 1:  # longer than every sentence of the plan
                    raise
                return [batch for half in (rows[::2], rows[1::2]) for batch in self._batches([half], update)]
        elif self.form == "blocks":
            batch = Batch.in_blocks([self.split.batch(unit) for unit in units], self.dtype)
        else:
            batch = Batch.padded(*self.split.batch(rows), self.dtype)
        batch = batch.keyed(pair_keys(self.settings.seed, update, torch.from_numpy(rows.astype(np.int64))))
        return [batch if self.workers.device == "cpu" else batch.pinned()]

    def _planned(self, epoch: int, last: int) -> Future[EpochPlan]:
        """Returns the plan of an epoch, and starts planning the next if that begins before update `last`."""
        wanted = [number for number in (epoch, epoch + 1) if number * self.in_epoch < last]
        plans = {number: self._plans.get(number) for number in wanted}
        self._plans = {number: plan or self._planner.submit(self._plan_of, number) for number, plan in plans.items()}
        return self._plans[epoch]

    def _read(self, planned: Future[EpochPlan], position: int, update: int) -> Update:
        plan = planned.result()
        dealt = plan.dealt[position : position + 1]
        mine = [
            Part(number, [batch for units in passes for batch in self._batches(list(map(plan.unit, units[0])), update)])
            for number, passes in self._parts(dealt, self.workers.rank).items()
        ]
        source_tokens, target_tokens = plan.real_tokens[dealt].sum(axis=(0, 1)).tolist()
        if self.packed_size:
            n_passes = len(self._passes(dealt, self.workers.rank))
            n_divided = sum(len(part.batches) for part in mine) - n_passes  # rare, and alike elsewhere
            computed_tokens = self._packed_tokens + 2 * self.packed_size.n_rows * n_divided * self.workers.size
        else:
            passes = [units for rank in range(self.workers.size) for units in self._passes(dealt, rank)]
            computed_tokens = sum(int(self._padded(plan, units)[1].sum()) for units in passes)
        return Update(mine, source_tokens, target_tokens, computed_tokens)

    def _plan_of(self, epoch: int) -> EpochPlan:
        return plan_epoch(self.split.source_lengths, self.split.target_lengths, self.settings, epoch)
