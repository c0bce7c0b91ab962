"""Connects a training's workers through a TCPStore that listens at one address (torch.distributed, without Ray).

    join("10.0.0.5", 29500, rank=0, n_workers=2, backend="gloo", timeout_s=1800)

By itself torch's store listens on all interfaces of rank 0's machine, and it knows no token. Given a socket that is
bound already, it takes calls at that address alone: at the loopback address nobody else reaches it.
"""

import socket
from datetime import timedelta

import torch.distributed as dist


def join(host: str, port: int, rank: int, n_workers: int, backend: str, timeout_s: float) -> None:
    """Makes this process one of `n_workers` of torch's default group; rank 0 hosts the store at `host`.

    All ranks call it. Raises OSError on rank 0 if the port is taken, and torch.distributed's errors if the others do
    not come within `timeout_s`.
    """
    timeout, listening_fd = timedelta(seconds=timeout_s), None
    if rank == 0:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening_fd = socket.create_server((host, port), family=family).detach()  # torch closes it
    store = dist.TCPStore(
        host, port, n_workers, is_master=rank == 0, timeout=timeout, master_listen_fd=listening_fd, multi_tenant=True
    )
    dist.init_process_group(backend, store=store, rank=rank, world_size=n_workers, timeout=timeout)
