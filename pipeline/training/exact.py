"""The sum of an update's gradients in a fixed order: the same bits with any number of workers (`exact_reduction`).

A sum of floating-point numbers depends on the order of its terms. By default (`workers.PlainSum`) that order, and so
the last bits, depend on the number of workers. The exact sum always adds the micro-batches in the same binary tree:
number i adds number i + stride, for strides ..., 4, 2, 1. For 8 micro-batches that is
((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)). Rank i % size computes number i, so with 1, 2, 4 or 8 workers the deep part
of the tree lies within the workers, and the rest is exchanges between pairs, those of one level in parallel. Any other
number of workers gives the same bits, but waits and holds more.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from model.training_step import TrainingStep
from pipeline.training.updates import MicroBatch
from pipeline.training.workers import Workers


def parent(number: int) -> int:
    """Returns the micro-batch that a micro-batch other than 0 is added to: its number without the highest bit."""
    return number - (1 << (number.bit_length() - 1))


class ExactSum:
    """Sums the gradients and losses of a training step; used as `workers.PlainSum` is."""

    def __init__(self, workers: Workers, step: TrainingStep) -> None:
        self.workers, self.step = workers, step
        self._partial: dict[int, Tensor] = {}
        """The sum of a micro-batch and of those added to it so far, by its number."""

    def in_order(self, mine: Sequence[MicroBatch]) -> Sequence[MicroBatch]:
        """Orders micro-batches so that each follows all that are added to it, depth first.

        So a single worker, or a power of two of them, holds at most log2(micro-batches) + 1 sums at a time.
        """
        return sorted(mine, key=lambda micro_batch: f"{micro_batch.number:b}"[::-1], reverse=True)

    def add(self, number: int) -> None:
        """Takes the sums of micro-batch `number` out of the step, where no other is accumulated yet."""
        sums = self.step.sums.clone()
        self.step.discard()
        for deeper in sorted(self._partial, reverse=True):
            if parent(deeper) == number:
                sums.add_(self._partial.pop(deeper))
        self._partial[number] = sums

    def over_workers(self, micro_batches: int) -> None:
        """Sets the step's sums to those of all `micro_batches` of the update, at every rank."""
        rank, size = self.workers.rank, self.workers.size
        for taken in sorted(range(1, micro_batches), key=lambda number: (-number.bit_length(), number)):
            sender, receiver = taken % size, parent(taken) % size
            if sender == receiver:  # `add` has added it, as it has all that are added to it
                continue
            if rank == sender:
                self.workers.send(self._partial.pop(taken), receiver)
            elif rank == receiver:
                received = self.workers.receive(torch.empty_like(self.step.sums), sender)
                self._partial[parent(taken)].add_(received)
        if rank == 0:
            self.step.sums.copy_(self._partial.pop(0))
        self.workers.copy_first(self.step.sums)
