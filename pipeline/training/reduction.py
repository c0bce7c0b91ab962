"""The sum of an update's gradients over its micro-batches and over the workers.

A sum of floating-point numbers depends on the order of its terms. By default each worker sums its micro-batches and an
all-reduce sums the workers, so the last bits depend on the number of workers. The exact reduction always sums the
micro-batches in the same binary tree: number i adds number i + stride, for strides ..., 4, 2, 1. For 8 micro-batches
that is ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)). Rank i % size computes number i, so with 1, 2, 4 or 8 workers the
deep part of the tree lies within the workers, and the rest is exchanges between pairs, those of one level in parallel.
Any other number of workers gives the same bits too, but waits more.

The plain sum may be sent in bfloat16, half as many bytes; then each worker's part and every partial sum are rounded.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from model.batch import Batch
from model.training_step import TrainingStep
from pipeline.training.updates import MicroBatch, Update
from pipeline.training.workers import Workers


class Addition(NamedTuple):
    """A node of the tree: the sum that starts with micro-batch `taken` is added to the one that starts with `into`."""

    into: int
    taken: int


def additions(leaves: int, first: int = 0, stride: int = 1) -> Iterator[int | Addition]:
    """Yields the tree over micro-batches 0 to `leaves` - 1 from leaves to root: numbers to compute and sums to add.

    The order is depth first, so that a single worker holds at most log2(leaves) + 1 sums at a time.
    """
    if first + stride >= leaves:
        yield first
    else:
        yield from additions(leaves, first, 2 * stride)
        yield from additions(leaves, first + stride, 2 * stride)
        yield Addition(first, first + stride)


class Reduction:
    """Sums the gradients and losses of a training step over micro-batches and workers."""

    def __init__(
        self, workers: Workers, step: TrainingStep, exact: bool, exchanged: torch.dtype = torch.float32
    ) -> None:
        """`exchanged` is the type in which the plain sum sends gradients; losses are always sent in float32."""
        self.workers, self.step, self.exact, self.exchanged = workers, step, exact, exchanged

    def micro_batches(self, update: Update[Batch]) -> Iterator[MicroBatch[Batch]]:
        """Yields this worker's part of an update; accumulate each in the step before the next is asked for.

        After the last one, the step's sums are those of the whole update, at every rank.
        """
        if self.exact:
            yield from self._along_the_tree(update)
        else:
            yield from update.mine
            self._exchange()

    def _exchange(self) -> None:
        step = self.step
        if self.exchanged == step.sums.dtype or self.workers.size == 1:
            self.workers.sum(step.sums)
        else:
            step.gradient_P.copy_(self.workers.sum(step.gradient_P.to(self.exchanged)))
            self.workers.sum(step.losses)

    def _along_the_tree(self, update: Update[Batch]) -> Iterator[MicroBatch[Batch]]:
        workers, step, sums = self.workers, self.step, dict[int, Tensor]()
        mine = {micro_batch.number: micro_batch for micro_batch in update.mine}
        for node in additions(update.micro_batches):
            if isinstance(node, Addition):
                sender, receiver = node.taken % workers.size, node.into % workers.size
                if sender == receiver == workers.rank:
                    sums[node.into].add_(sums.pop(node.taken))
                elif sender == workers.rank:
                    workers.send(sums.pop(node.taken), receiver)
                elif receiver == workers.rank:
                    sums[node.into].add_(workers.receive(torch.empty_like(step.sums), sender))
            elif node in mine:
                yield mine[node]
                sums[node] = step.sums.clone()
                step.discard()
        if workers.rank == 0:
            step.sums.copy_(sums[0])
        workers.copy_first(step.sums)
