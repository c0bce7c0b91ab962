"""pipeline.training.workers: rendezvous, network interfaces, order of collectives, and CPUs that round differently."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.artifacts import EncodedDataset
from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.training.loop import Training
from pipeline.training.workers import INTERFACE, interface_towards
from tests.support.tiny_training import free_port, group, start_processes, with_fields, work

ALONE = """
import os, sys
from pipeline.training.workers import connect
import torch, torch.distributed as dist
connect("127.0.0.1", lambda address: address, 0, 1, "cpu")
total = torch.ones(3)
dist.all_reduce(total)
print(total.sum().item(), *(os.environ[name] for name in sys.argv[1:]))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("own", [{}, {"NCCL_SOCKET_IFNAME": "mine"}])
def test_a_worker_tells_gloo_its_interface_and_keeps_the_users(own: dict[str, str]) -> None:
    """The interface is set in gloo's and NCCL's variables, unless the user has set them."""
    kept = {name: value for name, value in os.environ.items() if name not in INTERFACE}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *INTERFACE], env=kept | own, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    loopback = interface_towards("127.0.0.1")
    assert done.stdout.split() == ["3.0", loopback, own.get("NCCL_SOCKET_IFNAME", loopback)]


def train_on_mixed_cpus(
    rank: int, port: int, dataset: EncodedDataset, settings: TrainingSettings, folder: Path
) -> None:
    """Trains as one of two workers, the second of which rounds differently, and saves the weights after each update."""
    if rank:
        os.environ["ATEN_CPU_CAPABILITY"] = "default"  # torch reads it before its first operation
    assert (torch.backends.cpu.get_cpu_capability() == "DEFAULT") == bool(rank)
    with group(rank, 2, port) as workers:
        training = Training(workers, dataset, settings, folder)
        weights = [training.step.adam.weights_P.clone()]
        with training.writer:
            for update in range(1, settings.updates + 1):
                training.train(update)
                weights.append(training.step.adam.weights_P.clone())
    torch.save(weights, folder / f"{rank}.pt")


def test_workers_on_mixed_cpus_have_the_same_weights(dataset: EncodedDataset, tmp_path: Path) -> None:
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("torch has no vector instructions to do without on this CPU")
    start_processes(train_on_mixed_cpus, (free_port(), dataset, with_fields(), tmp_path), 2)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert [int((ours != theirs).sum()) for ours, theirs in zip(first, second, strict=True)] == [0] * 10


def train_with_a_flipped_bit(
    rank: int, port: int, dataset: EncodedDataset, settings: TrainingSettings, folder: Path
) -> None:
    """Trains as one of three workers; a bit of the last one's weights flips after the first update."""
    with group(rank, 3, port) as workers:
        training = Training(workers, dataset, settings, folder)
        with training.writer:
            training.train(1)
            if rank == 2:
                training.step.adam.weights_P.view(torch.int32)[7] ^= 1
            with pytest.raises(UserError) as raised:
                training.train(settings.updates)
    (folder / f"{rank}.txt").write_text(f"{training.state.update} {raised.value}")


def test_weights_that_differ_between_workers_end_the_run_at_the_next_validation(
    dataset: EncodedDataset, tmp_path: Path
) -> None:
    start_processes(train_with_a_flipped_bit, (free_port(), dataset, with_fields(validation_updates=2), tmp_path), 3)
    (message,) = {(tmp_path / f"{rank}.txt").read_text() for rank in range(3)}
    assert message.startswith("2 update 2: the weights of rank 0 and rank 2 differ")


def train_recorded(rank: int, size: int, port: int, folder: Path, *arguments: Any) -> None:
    """Trains as one of several workers, and writes down the kind and size of each collective."""
    recorded: list[tuple[str, int]] = []

    def record(name: str, call: Callable[..., Any], value: Any, *arguments: Any) -> Any:
        recorded.append((name, value.numel() if isinstance(value, Tensor) else 0))
        return call(value, *arguments)

    for name in ("all_reduce", "broadcast", "broadcast_object_list", "all_gather_object"):
        setattr(dist, name, partial(record, name, getattr(dist, name)))
    work(rank, size, port, *arguments)
    (folder / f"{size}-{rank}.json").write_text(json.dumps(recorded))


@pytest.mark.parametrize("exact_reduction", [False, True])
def test_all_workers_call_the_same_collectives_in_order(
    exact_reduction: bool, dataset: EncodedDataset, tmp_path: Path
) -> None:
    """With validation, checkpoints, the loss of a worker after four updates, and the last update."""
    settings = with_fields(exact_reduction=exact_reduction)
    for size, until in ((3, 4), (2, None)):
        start_processes(train_recorded, (size, free_port(), tmp_path, dataset, settings, tmp_path / "run", until), size)
        first, *others = (json.loads((tmp_path / f"{size}-{rank}.json").read_text()) for rank in range(size))
        assert len(first) > 10
        assert all(other == first for other in others)
