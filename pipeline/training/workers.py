"""The workers of a training run: how they meet, and what they sum, copy and agree on (torch.distributed, without Ray).

    connect("10.0.0.5", from_first, rank=0, size=2, device="cpu")
    workers = Workers(rank=0, size=2)

By default torch's store listens on all interfaces of rank 0's machine, without a token. Given a bound socket, it
accepts calls at that address only: at the loopback address nobody else reaches it. By default gloo takes the address
that the machine's name stands for, on many machines 127.0.1.1, where no other machine finds it.
"""

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from model.training_step import TrainingStep
from pipeline.errors import UserError

Value = TypeVar("Value")
Address = tuple[str, int]
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
"""torch.distributed's backend by type of device. With several, torch sends Python objects by the CPU's."""
INTERFACE = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""The variables that name the interface between the workers; the user's own values are kept."""
SIOCGIFADDR = 0x8915
"""Linux's request for an interface's address (netdevice(7))."""
TIMEOUT = timedelta(minutes=30)
"""How long workers wait for each other, to meet and in each collective before the first update."""


def connect(
    host: str, from_first: Callable[[Address | None], Address | None], rank: int, size: int, device: str
) -> None:
    """Makes this process one of `size` in torch's default group; rank 0 hosts the store at its `host`.

    All ranks call it, each with an address of its own machine. `from_first` returns rank 0's argument at every rank.
    The workers talk on the interfaces by which they reach rank 0. Raises torch.distributed's errors if the others do
    not come within TIMEOUT or, for GPUs, if NCCL cannot connect them.
    """
    computes_on = torch.device(device)
    listening = None
    if rank == 0:
        listening = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    address = from_first(listening.getsockname()[:2] if listening else None)
    assert address, "rank 0 gives its address"
    host, port = address
    if interface := interface_towards(host):
        for name in INTERFACE:
            os.environ.setdefault(name, interface)
    store = dist.TCPStore(
        host,
        port,
        size,
        is_master=rank == 0,
        timeout=TIMEOUT,
        master_listen_fd=listening.detach() if listening else None,  # torch closes it
        multi_tenant=True,
    )
    dist.init_process_group(
        BACKENDS[computes_on.type],
        store=store,
        rank=rank,
        world_size=size,
        timeout=TIMEOUT,
        device_id=computes_on if computes_on.type == "cuda" else None,  # NCCL connects now and takes its memory
    )


def interface_towards(host: str) -> str | None:
    """Returns the name of this machine's interface with the address from which `host` (IPv4) would be called.

    For an address of this machine that is its own interface. Returns None where the system does not tell: beyond Linux,
    with IPv6, and for a second address of one interface; but the loopback interface is known by its name.
    """
    if host in ("127.0.0.1", "::1"):
        return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if sys.platform != "linux" or ":" in host:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        address = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:  # an interface without an address
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None


@dataclass(frozen=True)
class Workers:
    """All workers of a run, as the one of this process sees them. Several are connected by torch's default group."""

    rank: int = 0
    """The number of this worker."""
    size: int = 1
    device: str = "cpu"
    """The device of this worker."""

    def use_device(self) -> None:
        """Makes the worker's GPU the current one of the calling thread; every thread that uses the GPU must call it.

        Pinned memory, collectives and library kernels belong to the current GPU, which is number 0 at first.
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
        """Raises a UserError from any worker's body in all workers, so that none waits for one that has failed."""
        message: str | None = None
        try:
            yield
        except UserError as error:
            message = str(error)
        for reported in self.gathered(message):
            if reported is not None:
                raise UserError(reported)


class PlainSum:
    """Sums the gradients and losses of a training step: over micro-batches as they come, over workers by an all-reduce.

    The gradients may be sent in bfloat16, half as many bytes; then each worker's part and every partial sum are
    rounded. Losses are always sent in float32.
    """

    def __init__(self, workers: Workers, step: TrainingStep, exchanged: torch.dtype = torch.float32) -> None:
        self.workers, self.step, self.exchanged = workers, step, exchanged

    def in_order(self, mine: Sequence[Value]) -> Sequence[Value]:
        """Returns a worker's micro-batches in the order in which it must accumulate them."""
        return mine

    def add(self, number: int) -> None:
        """Adds the micro-batch just accumulated to those before; the step itself has done so."""

    def over_workers(self, micro_batches: int) -> None:
        """Sets the step's sums to those of all `micro_batches` of the update, at every rank."""
        step, workers = self.step, self.workers
        if workers.size == 1 or self.exchanged == step.sums.dtype:
            workers.sum(step.sums)
        else:
            step.gradient_P.copy_(workers.sum(step.gradient_P.to(self.exchanged)))
            workers.sum(step.losses)
