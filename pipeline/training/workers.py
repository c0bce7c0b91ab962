"""Collectives between the workers of a run, on torch.distributed only (no Ray).

    connect("10.0.0.5", broadcast_object, rank=0, size=2, device="cpu")
    workers = Workers(rank=0, size=2)
    workers.all_reduce(sums)      # or ExactSum(workers, sums), for sums in a fixed order

`connect` binds torch's store to one address: by default it listens on all interfaces of rank 0's machine, without
authentication. It also names the interface: gloo's default is the host name's address, on many machines 127.0.1.1,
which other machines cannot reach.
"""

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.environment import cache_folder
from pipeline.errors import UserError

Value = TypeVar("Value")
Address = tuple[str, int]
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
"""torch.distributed's backend by device type. With several, Python objects use the CPU's."""
INTERFACE = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""Variables that name the interface between workers; values set by the user are kept."""
FLIGHT_RECORDER = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
"""With these, a worker whose collective times out writes its last ones to a file (docs/recovery.md)."""
TIMEOUT = timedelta(minutes=30)
"""Timeout for connecting, and of each collective before the first update."""


def connect(
    host: str, broadcast_object: Callable[[Address | None], Address | None], rank: int, size: int, device: str
) -> None:
    """Joins torch's default process group of `size`; rank 0 hosts the store at its `host`.

    All ranks call it, each with an address of its own machine. `broadcast_object` returns rank 0's argument at every
    rank. Workers communicate over the interfaces by which they reach rank 0. Raises torch.distributed's errors if
    others do not join within TIMEOUT or, for GPUs, if NCCL cannot connect them.
    """
    computes_on = torch.device(device)
    listening = None
    if rank == 0:
        listening = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    address = broadcast_object(listening.getsockname()[:2] if listening else None)
    assert address, "rank 0 sends its address"
    host, port = address
    interface = interface_towards(host)
    chosen = dict.fromkeys(INTERFACE, interface) if interface else {}
    with suppress(OSError, RuntimeError):  # a home that is missing or read-only costs the traces alone
        (traces := cache_folder() / "nccl").mkdir(parents=True, exist_ok=True)
        chosen |= FLIGHT_RECORDER | {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(traces / f"{port}_rank_")}
    for name, value in chosen.items():
        os.environ.setdefault(name, value)
    store = dist.TCPStore(
        host,
        port,
        size,
        is_master=rank == 0,
        timeout=TIMEOUT,
        master_listen_fd=listening.detach() if listening else None,  # closed by torch
        multi_tenant=True,
    )
    dist.init_process_group(
        BACKENDS[computes_on.type],
        store=store,
        rank=rank,
        world_size=size,
        timeout=TIMEOUT,
        device_id=computes_on if computes_on.type == "cuda" else None,  # NCCL connects and allocates now
    )


def interface_towards(host: str) -> str | None:
    """Returns the name of this machine's interface towards `host`; None if the system does not say."""
    import psutil

    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        address = probe.getsockname()[0]
    interfaces = psutil.net_if_addrs().items()
    return next((name for name, known in interfaces if address in {each.address for each in known}), None)


@dataclass(frozen=True)
class Workers:
    """All workers of a run, seen from this process; several are connected by torch's default process group."""

    rank: int = 0
    """This worker's rank."""
    size: int = 1
    device: str = "cpu"
    """This worker's device."""

    def use_device(self) -> None:
        """Makes the worker's GPU current in the calling thread; every thread that uses the GPU must call it.

        Pinned memory, collectives and library kernels belong to the current GPU, which is initially number 0.
        """
        device = torch.device(self.device)
        if device.index is not None and device.type == "cuda":
            torch.cuda.set_device(device)

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of later collectives."""
        if self.size > 1 and dist.group.WORLD:
            dist.group.WORLD.set_timeout(timeout)

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sums a tensor over all workers in place (all-reduce)."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def broadcast(self, tensor: Tensor) -> None:
        """Overwrites every rank's tensor with rank 0's (broadcast)."""
        if self.size > 1:
            dist.broadcast(tensor, 0)

    def broadcast_object(self, value: Value) -> Value:
        """Returns rank 0's value at every rank."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box)
        return box[0]

    def gather_objects(self, value: Value) -> list[Value]:
        """Returns the values of all ranks, in rank order, at every rank."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values

    @contextmanager
    def raise_at_all_ranks(self) -> Iterator[None]:
        """Raises any worker's UserError from the body at all workers, so that none waits for one that failed."""
        message: str | None = None
        try:
            yield
        except UserError as error:
            message = str(error)
        for reported in self.gather_objects(message):
            if reported is not None:
                raise UserError(reported)


def depth_first(numbers: Iterable[int]) -> list[int]:
    """Orders parts of an update, each after all that `ExactSum` adds to it.

    One worker, or a power of two, then holds at most log2(parts) + 1 sums at a time.
    """
    return sorted(numbers, key=lambda number: f"{number:b}"[::-1], reverse=True)


def parent(number: int) -> int:
    """Returns the part that part `number` (not 0) is added to: its number without the highest bit."""
    return number - (1 << (number.bit_length() - 1))


class ExactSum:
    """Sums gradients and losses in a fixed order: identical bits with any number of workers (`exact_reduction`).

    Floating-point sums depend on the order of their terms. This one always adds parts in the same binary tree: number i
    adds number i + stride, for strides ..., 4, 2, 1. For 8 parts that is ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
    Rank i % size computes number i, so with 1, 2, 4 or 8 workers the lower levels of the tree stay within workers, and
    the rest are pairwise exchanges, concurrent within a level. Other numbers of workers give the same bits, but wait
    longer and hold more sums.
    """

    def __init__(self, workers: Workers, sums: Tensor) -> None:
        """`sums` holds the sums of one part, then those of an update."""
        self.workers, self.sums = workers, sums
        self._partial: dict[int, Tensor] = {}
        """Partial sums by part number."""

    def add(self, number: int) -> None:
        """Moves the sums of part `number`, the next `depth_first`, out of `sums`."""
        sums = self.sums.clone()
        self.sums.zero_()
        for deeper in sorted(self._partial, reverse=True):
            if parent(deeper) == number:
                sums.add_(self._partial.pop(deeper))
        self._partial[number] = sums

    def reduce(self, n_parts: int) -> None:
        """Sets `sums` to the totals of all `n_parts` of the update, at every rank."""
        rank, size = self.workers.rank, self.workers.size
        for taken in sorted(range(1, n_parts), key=lambda number: (-number.bit_length(), number)):
            sender, receiver = taken % size, parent(taken) % size
            if sender == receiver:  # already added by `add`
                continue
            if rank == sender:
                dist.send(self._partial.pop(taken), receiver)
            elif rank == receiver:
                dist.recv(received := torch.empty_like(self.sums), sender)
                self._partial[parent(taken)].add_(received)
        if rank == 0:
            self.sums.copy_(self._partial.pop(0))
        self.workers.broadcast(self.sums)
