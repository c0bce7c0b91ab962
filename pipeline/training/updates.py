"""The updates of a run in order, read and laid out in a background thread.

Another thread plans the next epoch, because a plan takes seconds for WMT14's pairs. The workers of one node share each
plan (`pipeline.training.plans`).

Shapes: B pairs, S source positions, T target positions.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from model.batch import Batch, PackedSize
from model.flops import training_flop
from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.text.batching import EpochPlan, plan_epoch
from pipeline.text.encoding import EncodedSplit
from pipeline.training.plans import shared_plan
from pipeline.training.workers import Workers

AHEAD_UPDATES = 2
"""Number of updates read ahead."""


class MicroBatch(NamedTuple):
    """The input of one forward and backward pass."""

    number: int
    """Its index in the update."""
    batch: Batch


class Update(NamedTuple):
    """One worker's share of an update, with the size of the whole update."""

    mine: list[MicroBatch]
    micro_batches: int
    """Number of micro-batches over all workers."""
    source_tokens: int
    target_tokens: int
    computed_tokens: int
    """Source and target tokens, including padding."""
    flop: float
    """FLOP of forward and backward (`model.flops`)."""


class Updates:
    """Reads the updates of a split; rank i % size reads micro-batch i of each.

    All ranks construct one. Raises UserError at every rank if the first plan misses the token budget
    (`pipeline.text.batching`), cannot be shared (`pipeline.training.plans`) or differs between nodes. If a later plan
    cannot be shared, `between` raises at that node's ranks only.
    """

    def __init__(
        self,
        split: EncodedSplit,
        settings: TrainingSettings,
        workers: Workers,
        dtype: torch.dtype,
        packed: bool = False,
        epoch: int = 0,
    ) -> None:
        """`dtype` is the dtype of matrix products. Batches are packed or, by default, padded (`model.batch`).

        `epoch` is the epoch to resume in; earlier ones are not planned.
        """
        self.split, self.settings, self.workers, self.dtype = split, settings, workers, dtype
        self._planner = ThreadPoolExecutor(max_workers=1)
        self._plans = {epoch: self._planner.submit(self._plan_of, epoch)}
        """By epoch: the plan last used, and the next."""
        with workers.raise_at_all_ranks():
            plan = self._plans[epoch].result()
        if len(set(workers.gather_objects(plan.sha256()))) > 1:
            raise UserError(
                f"the nodes plan epoch {epoch} differently; install the same versions of aiayn and numpy on all of them"
            )
        self.in_epoch = len(plan)
        """Number of updates per epoch, the same in every epoch."""
        self.largest = [rows.copy() for rows in plan.largest]  # a view would keep the plan mapped
        self.packed_size = packed_size(plan) if packed else None

    def between(self, first: int, last: int) -> Iterator[Update]:
        """Yields updates `first` to `last` - 1 of the run, from 0, reading ahead."""
        waiting: deque[Future[Update]] = deque()
        with ThreadPoolExecutor(max_workers=1, initializer=self.workers.use_device) as reader:
            try:
                for update in range(first, last):
                    epoch, position = divmod(update, self.in_epoch)
                    waiting.append(reader.submit(self._read, self._planned(epoch, last), position))
                    if len(waiting) > AHEAD_UPDATES:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                reader.shutdown(cancel_futures=True)

    def close(self) -> None:
        """Releases the plans, without waiting for one being computed."""
        self._planner.shutdown(wait=False, cancel_futures=True)
        self._plans.clear()

    def batch(self, rows: NDArray[np.int64]) -> Batch:
        """Reads pairs into a batch on the host, pinned for a GPU."""
        source_BS, target_BT = self.split.batch(rows)
        if self.packed_size:
            batch = Batch.packed(source_BS, target_BT, self.packed_size)
        else:
            batch = Batch.padded(source_BS, target_BT, self.dtype)
        return batch if self.workers.device == "cpu" else batch.pinned()

    def _planned(self, epoch: int, last: int) -> Future[EpochPlan]:
        """Returns the plan of an epoch, and starts planning the next if that begins before update `last`."""
        wanted = [number for number in (epoch, epoch + 1) if number * self.in_epoch < last]
        plans = {number: self._plans.get(number) for number in wanted}
        self._plans = {number: plan or self._planner.submit(self._plan_of, number) for number, plan in plans.items()}
        return self._plans[epoch]

    def _read(self, planned: Future[EpochPlan], position: int) -> Update:
        plan = planned.result()
        parts = plan[position]
        mine = [
            MicroBatch(number, self.batch(parts[number]))
            for number in range(self.workers.rank, len(parts), self.workers.size)
        ]
        rows = np.concatenate(parts)
        flop = training_flop(self.settings.model, *self.split.lengths_of(rows))
        padded_tokens = int(plan.computed_tokens[position])
        return Update(
            mine,
            len(parts),
            int(plan.source_tokens[position]),
            int(plan.target_tokens[position]),
            2 * self.packed_size.n_rows * len(parts) if self.packed_size else padded_tokens,
            flop,
        )

    def _plan_of(self, epoch: int) -> EpochPlan:
        if self.workers.size > 1:
            return shared_plan(self.split, self.settings, epoch)
        return plan_epoch(self.split.source_lengths, self.split.target_lengths, self.settings, epoch)


def packed_size(plan: EpochPlan) -> PackedSize:
    """Returns the size that fits all micro-batches of all epochs, since all epochs hold equally many tokens."""
    n_pairs = np.diff(plan.bounds)
    longest = int((plan.padded_tokens // n_pairs[:, None]).max())
    return PackedSize.of(int(plan.real_tokens.max()), int(n_pairs.max()), longest)
