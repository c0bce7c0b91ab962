"""The gradients of an update, summed over its micro-batches and over the workers.

Sums of floating-point numbers depend on their order. By default each worker adds up its micro-batches and an
all-reduce adds the workers: the last bits tell their number. The exact reduction adds the micro-batches in one binary
tree whatever the layout: number i takes in number i + stride, for strides ..., 4, 2, 1, that of 8 micro-batches being
((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)). Number i is computed by rank i % size, so with 1, 2, 4 or 8 workers the deep
part of the tree lies inside the workers, and the rest are exchanges between pairs, those of a level side by side. Any
other number of workers ends in the same bits too, with more waiting.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from model.training_step import TrainingStep
from pipeline.training.prefetching import MicroBatch
from pipeline.training.worker_group import WorkerGroup


class Addition(NamedTuple):
    """A joint of the tree: the sum that begins with micro-batch `into` takes in the one that begins with `taken`."""

    into: int
    taken: int


def additions(leaves: int, first: int = 0, stride: int = 1) -> Iterator[int | Addition]:
    """The tree over micro-batches 0 to `leaves` - 1 from leaves to root: numbers to compute and sums to join.

    Depth first, so that one worker alone holds log2(leaves) + 1 sums at a time.
    """
    if first + stride >= leaves:
        yield first
    else:
        yield from additions(leaves, first, 2 * stride)
        yield from additions(leaves, first + stride, 2 * stride)
        yield Addition(first, first + stride)


class Reduction:
    """Sums the gradients of a training step, and some figures beside them, over micro-batches and workers."""

    def __init__(self, group: WorkerGroup, step: TrainingStep, n_figures: int, exact: bool) -> None:
        self.group, self.step, self.exact = group, step, exact
        needed = exact or group.size > 1
        sizes = [parameter.numel() for parameter in step.master.parameters()] if needed else []
        # One buffer to reduce: the gradients, then the figures.
        self.flat = torch.zeros(sum(sizes) + n_figures, device=group.device)
        self.gradients, self.figures = self.flat[:-n_figures].split(sizes), self.flat[-n_figures:]

    def sum(
        self,
        leaves: int,
        mine: Sequence[MicroBatch],
        accumulate: Callable[[MicroBatch], Tensor],
        initial_figures: Tensor,
    ) -> Tensor:
        """The figures' sum over an update of `leaves` micro-batches, at every rank; the step then has the gradients'.

        `accumulate` adds one of `mine` to the step's gradients and gives its figures. Those of rank 0 start from
        `initial_figures`. What is returned is overwritten by the next call.
        """
        if self.exact:
            self._tree(leaves, {batch.number: batch for batch in mine}, accumulate, initial_figures)
        else:
            self.figures.zero_()
            if self.group.rank == 0:
                self.figures.add_(initial_figures)
            for batch in mine:
                self.figures.add_(accumulate(batch))
            if self.gradients:
                torch._foreach_copy_(self.gradients, self._of_step())
                self.group.sum(self.flat)
        if self.gradients:
            torch._foreach_copy_(self._of_step(), self.gradients)
        return self.figures

    def _tree(
        self,
        leaves: int,
        mine: dict[int, MicroBatch],
        accumulate: Callable[[MicroBatch], Tensor],
        initial_figures: Tensor,
    ) -> None:
        group, sums = self.group, dict[int, Tensor]()
        for node in additions(leaves):
            if isinstance(node, Addition):
                giver, taker = node.taken % group.size, node.into % group.size
                if giver == taker == group.rank:
                    sums[node.into].add_(sums.pop(node.taken))
                elif giver == group.rank:
                    group.send(sums.pop(node.taken), taker)
                elif taker == group.rank:
                    sums[node.into].add_(group.receive(torch.empty_like(self.flat), giver))
            elif node in mine:
                figures = accumulate(mine[node])
                sums[node] = torch.cat((*self._of_step(), figures + initial_figures if node == 0 else figures))
                self.step.discard()
        if group.rank == 0:
            self.flat.copy_(sums[0])
        group.copy_first(self.flat)

    def _of_step(self) -> list[Tensor]:
        return [gradient.view(-1) for gradient in self.step.gradients()]
