"""Connects a training's workers through a TCPStore that listens at one address (torch.distributed, without Ray).

    join("10.0.0.5", from_first, rank=0, n_workers=2, device="cpu")

By itself torch's store listens on all interfaces of rank 0's machine, and it knows no token. Given a socket that is
bound already, it takes calls at that address alone: at the loopback address nobody else reaches it. Gloo by itself
takes the address that the machine's name stands for, on many machines 127.0.1.1, where no other machine finds it.
"""

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from pipeline.training.worker_group import BACKENDS

INTERFACE = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""The variables that name the interface on which a worker talks with the others; the user's own values are kept."""
SIOCGIFADDR = 0x8915
"""Linux's request for an interface's address (netdevice(7))."""
TIMEOUT = timedelta(minutes=30)
"""How long the workers wait for each other, to meet and in each collective until they train."""
Address = tuple[str, int]


def join(
    host: str, from_first: Callable[[Address | None], Address | None], rank: int, n_workers: int, device: str
) -> None:
    """Makes this process one of `n_workers` of torch's default group; rank 0 hosts the store at its `host`.

    All ranks call it, each with an address of its own machine. `from_first` returns rank 0's argument at every rank;
    they talk on the interfaces by which they reach rank 0. Raises torch.distributed's errors if the others do not come
    within TIMEOUT or, for GPUs, if NCCL cannot connect them.
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
        n_workers,
        is_master=rank == 0,
        timeout=TIMEOUT,
        master_listen_fd=listening.detach() if listening else None,  # torch closes it
        multi_tenant=True,
    )
    dist.init_process_group(
        BACKENDS[computes_on.type],
        store=store,
        rank=rank,
        world_size=n_workers,
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
