"""Where the workers of a training meet, and by which interface they talk."""

import os
import subprocess
import sys

import pytest

from pipeline.training.rendezvous import INTERFACE, interface_towards

ALONE = """
import os, sys
from pipeline.training.rendezvous import join
import torch, torch.distributed as dist
join("127.0.0.1", lambda address: address, 0, 1, "cpu")
total = torch.ones(3)
dist.all_reduce(total)
print(total.sum().item(), *(os.environ[name] for name in sys.argv[1:]))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("own", [{}, {"NCCL_SOCKET_IFNAME": "mine"}])
def test_a_worker_tells_gloo_its_interface_and_keeps_the_users(own: dict[str, str]) -> None:
    """Gloo and NCCL read it from their variables."""
    kept = {name: value for name, value in os.environ.items() if name not in INTERFACE}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *INTERFACE], env=kept | own, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    loopback = interface_towards("127.0.0.1")
    assert done.stdout.split() == ["3.0", loopback, own.get("NCCL_SOCKET_IFNAME", loopback)]
