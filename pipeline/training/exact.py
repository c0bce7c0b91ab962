"""Summation of gradients in a fixed order: identical bits with any number of workers (`exact_reduction`).

Floating-point sums depend on the order of their terms, and so by default on the number of workers. The exact sum always
adds parts in the same binary tree: number i adds number i + stride, for strides ..., 4, 2, 1. For 8 parts that is
((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)). Rank i % size computes number i, so with 1, 2, 4 or 8 workers the lower
levels of the tree stay within workers, and the rest are pairwise exchanges, concurrent within a level. Other numbers of
workers give the same bits, but wait longer and hold more sums.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from model.training_step import TrainingStep
from pipeline.training.updates import Part
from pipeline.training.workers import Workers


def parent(number: int) -> int:
    """Returns the part that part `number` (not 0) is added to: its number without the highest bit."""
    return number - (1 << (number.bit_length() - 1))


class ExactSum:
    """Sums the gradients and losses of a training step in tree order."""

    def __init__(self, workers: Workers, step: TrainingStep) -> None:
        self.workers, self.step = workers, step
        self._partial: dict[int, Tensor] = {}
        """Partial sums by part number."""

    def in_order(self, mine: Sequence[Part]) -> Sequence[Part]:
        """Orders parts depth first, each after all that are added to it.

        One worker, or a power of two, then holds at most log2(parts) + 1 sums at a time.
        """
        return sorted(mine, key=lambda part: f"{part.number:b}"[::-1], reverse=True)

    def add(self, number: int) -> None:
        """Moves the sums of part `number` out of the step, which must hold no other."""
        sums = self.step.sums.clone()
        self.step.discard()
        for deeper in sorted(self._partial, reverse=True):
            if parent(deeper) == number:
                sums.add_(self._partial.pop(deeper))
        self._partial[number] = sums

    def reduce(self, n_parts: int) -> None:
        """Sets the step's sums to the totals of all `n_parts` of the update, at every rank."""
        rank, size = self.workers.rank, self.workers.size
        for taken in sorted(range(1, n_parts), key=lambda number: (-number.bit_length(), number)):
            sender, receiver = taken % size, parent(taken) % size
            if sender == receiver:  # already added by `add`
                continue
            if rank == sender:
                dist.send(self._partial.pop(taken), receiver)
            elif rank == receiver:
                dist.recv(received := torch.empty_like(self.step.sums), sender)
                self._partial[parent(taken)].add_(received)
        if rank == 0:
            self.step.sums.copy_(self._partial.pop(0))
        self.workers.broadcast(self.step.sums)
