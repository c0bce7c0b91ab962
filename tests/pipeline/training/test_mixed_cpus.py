"""Workers on CPUs with different vector instructions, for which torch's kernels round differently."""

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from pipeline.settings import TrainingSettings
from pipeline.store.artifacts import EncodedDataset
from pipeline.training.loop import Training
from pipeline.training.worker_group import WorkerGroup
from tests.support.tiny_training import free_port, start_processes, with_fields


def train(rank: int, port: int, dataset: EncodedDataset, settings: TrainingSettings, folder: Path) -> None:
    """Trains as one of two workers, the second without vector instructions; saves the weights after each update."""
    if rank:
        os.environ["ATEN_CPU_CAPABILITY"] = "default"  # torch reads it before its first operation
    assert (torch.backends.cpu.get_cpu_capability() == "DEFAULT") == bool(rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", world_size=2, rank=rank)
    training = Training(WorkerGroup(rank, 2), dataset, settings, folder)
    weights = [training.step.adam.weights_P.clone()]
    with training.writer:
        for update in range(1, settings.updates + 1):
            training.train(update)
            weights.append(training.step.adam.weights_P.clone())
    torch.save(weights, folder / f"{rank}.pt")
    dist.destroy_process_group()


def test_all_workers_have_the_same_weights(dataset: EncodedDataset, tmp_path: Path) -> None:
    """At the start and after each update the weights of both are equal to the last bit."""
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("torch has no vector instructions to do without on this CPU")
    start_processes(train, (free_port(), dataset, with_fields(), tmp_path), 2)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    differing = [int((ours != theirs).sum()) for ours, theirs in zip(first, second, strict=True)]
    assert differing == [0] * 10
