"""Connects a training's workers through a TCPStore that listens at one address (torch.distributed, without Ray).

    join("10.0.0.5", 29500, rank=0, n_workers=2, backend="gloo", timeout_s=1800)

By itself torch's store listens on all interfaces of rank 0's machine, and it knows no token. Given a socket that is
bound already, it takes calls at that address alone: at the loopback address nobody else reaches it. Gloo by itself
takes the address that the machine's name stands for, on many machines 127.0.1.1, where no other machine finds it.
"""

import fcntl
import os
import socket
import struct
import sys
from datetime import timedelta

import torch.distributed as dist

INTERFACE = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""The variables that name the interface on which a worker talks with the others; the user's own values are kept."""
SIOCGIFADDR = 0x8915
"""Linux's request for an interface's address (netdevice(7))."""


def join(host: str, port: int, rank: int, n_workers: int, backend: str, timeout_s: float) -> None:
    """Makes this process one of `n_workers` of torch's default group; rank 0 hosts the store at `host`.

    All ranks call it, and talk on the interfaces by which they reach `host`. Raises OSError on rank 0 if the port is
    taken, and torch.distributed's errors if the others do not come within `timeout_s`.
    """
    timeout, listening_fd = timedelta(seconds=timeout_s), None
    if rank == 0:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening_fd = socket.create_server((host, port), family=family).detach()  # torch closes it
    if interface := interface_towards(host):
        for name in INTERFACE:
            os.environ.setdefault(name, interface)
    store = dist.TCPStore(
        host, port, n_workers, is_master=rank == 0, timeout=timeout, master_listen_fd=listening_fd, multi_tenant=True
    )
    dist.init_process_group(backend, store=store, rank=rank, world_size=n_workers, timeout=timeout)


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
