"""What the workers of a training sum, share and agree on, by torch.distributed alone, without Ray.

Tensors travel between devices; the backend `BACKENDS` keeps Python objects, such as messages, off the GPUs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.errors import UserError

Value = TypeVar("Value")
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
"""torch.distributed's backend by type of device. With several, torch sends objects by the CPU's."""


@dataclass(frozen=True)
class WorkerGroup:
    """One worker's place among the workers. If there are several, torch.distributed's default group connects them."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    def __post_init__(self) -> None:
        self.use_device()

    def use_device(self) -> None:
        """Makes the worker's GPU the current one of the calling thread; other threads of the worker must call it too.

        Pinned memory, collectives and kernels of libraries belong to the current GPU, which is number 0 at first.
        """
        device = torch.device(self.device)
        if device.index is not None and device.type == "cuda":
            torch.cuda.set_device(device)

    def wait_at_most(self, timeout: timedelta) -> None:
        """Limits how long each later collective waits for the other workers before it raises an error."""
        if self.size > 1 and dist.group.WORLD:
            dist.group.WORLD.set_timeout(timeout)

    def sum(self, tensor: Tensor) -> Tensor:
        """Sums a tensor over all workers, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def send(self, tensor: Tensor, rank: int) -> None:
        """Sends a tensor to another worker, which must receive it."""
        dist.send(tensor, rank)

    def receive(self, tensor: Tensor, rank: int) -> Tensor:
        """Overwrites `tensor` with the one that another worker sends."""
        dist.recv(tensor, rank)
        return tensor

    def copy_first(self, tensor: Tensor) -> None:
        """Overwrites every rank's tensor with that of rank 0."""
        if self.size > 1:
            dist.broadcast(tensor, 0)

    def from_first(self, value: Value) -> Value:
        """Returns rank 0's value at every rank."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box)
        return box[0]

    def gathered(self, value: Value) -> list[Value]:
        """Returns the values of all ranks, in their order, at every rank."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """Raises a UserError from any worker's body in all workers, so that none waits for one that has given up."""
        message: str | None = None
        try:
            yield
        except UserError as error:
            message = str(error)
        for reported in self.gathered(message):
            if reported is not None:
                raise UserError(reported)
