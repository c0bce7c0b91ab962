"""Summation of gradients in a fixed order: identical bits with any number of workers (`exact_reduction`).

Floating-point sums depend on the order of their terms. By default (`workers.PlainSum`) that order, and so the last
bits, depend on the number of workers. The exact sum always adds micro-batches in the same binary tree: number i adds
number i + stride, for strides ..., 4, 2, 1. For 8 micro-batches that is ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)). Rank
i % size computes number i, so with 1, 2, 4 or 8 workers the lower levels of the tree stay within workers, and the rest
are pairwise exchanges, concurrent within a level. Other numbers of workers give the same bits, but wait longer and hold
more sums.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from model.training_step import TrainingStep
from pipeline.training.updates import MicroBatch
from pipeline.training.workers import Workers


def parent(number: int) -> int:
    """Returns the micro-batch that micro-batch `number` (not 0) is added to: its number without the highest bit."""
    return number - (1 << (number.bit_length() - 1))


class ExactSum:
    """Sums the gradients and losses of a training step in tree order; same interface as `workers.PlainSum`."""

    def __init__(self, workers: Workers, step: TrainingStep) -> None:
        self.workers, self.step = workers, step
        self._partial: dict[int, Tensor] = {}
        """Partial sums by micro-batch number."""

    def in_order(self, mine: Sequence[MicroBatch]) -> Sequence[MicroBatch]:
        """Orders micro-batches depth first, each after all that are added to it.

        One worker, or a power of two, then holds at most log2(micro-batches) + 1 sums at a time.
        """
        return sorted(mine, key=lambda micro_batch: f"{micro_batch.number:b}"[::-1], reverse=True)

    def add(self, number: int) -> None:
        """Moves the sums of micro-batch `number` out of the step, which must hold no other."""
        sums = self.step.sums.clone()
        self.step.discard()
        for deeper in sorted(self._partial, reverse=True):
            if parent(deeper) == number:
                sums.add_(self._partial.pop(deeper))
        self._partial[number] = sums

    def reduce(self, micro_batches: int) -> None:
        """Sets the step's sums to the totals of all `micro_batches` of the update, at every rank."""
        rank, size = self.workers.rank, self.workers.size
        for taken in sorted(range(1, micro_batches), key=lambda number: (-number.bit_length(), number)):
            sender, receiver = taken % size, parent(taken) % size
            if sender == receiver:  # already added by `add`
                continue
            if rank == sender:
                self.workers.send(self._partial.pop(taken), receiver)
            elif rank == receiver:
                received = self.workers.receive(torch.empty_like(self.step.sums), sender)
                self._partial[parent(taken)].add_(received)
        if rank == 0:
            self.step.sums.copy_(self._partial.pop(0))
        self.workers.broadcast(self.step.sums)
