"""The workers of one training: what they sum, share and agree on. torch.distributed alone; no Ray."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.errors import UserError

Value = TypeVar("Value")


@dataclass(frozen=True)
class WorkerGroup:
    """One worker's place among the workers; with more than one, torch.distributed's default group joins them."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all workers, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def send(self, tensor: Tensor, rank: int) -> None:
        """Gives a tensor to another worker, which receives it."""
        dist.send(tensor, rank)

    def receive(self, tensor: Tensor, rank: int) -> Tensor:
        """What another worker sends, written into `tensor`."""
        dist.recv(tensor, rank)
        return tensor

    def copy_first(self, tensor: Tensor) -> None:
        """Rank 0's tensor, written into that of every rank."""
        if self.size > 1:
            dist.broadcast(tensor, 0)

    def from_first(self, value: Value) -> Value:
        """Rank 0's value, at every rank."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box, device=torch.device(self.device))
        return box[0]

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """A UserError in the body of any worker is raised in all, so that none waits for one that gave up."""
        message: str | None = None
        try:
            yield
        except UserError as error:
            message = str(error)
        messages = [message]
        if self.size > 1:
            messages = [None] * self.size
            dist.all_gather_object(messages, message)
        for found in messages:
            if found is not None:
                raise UserError(found)
