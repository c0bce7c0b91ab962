"""pipeline.training on each device: the loop, prefetching, checkpoints, validation and exact reduction.

The same tests run on the CPU and, if torch finds one, on a GPU. They need neither Ray nor real text.
"""

import pickle
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from model.batch import Batch
from pipeline.artifacts import EncodedDataset
from pipeline.errors import UserError
from pipeline.hardware import make_deterministic
from pipeline.settings import TrainingSettings
from pipeline.text.encoding import EncodedSplit
from pipeline.training.checkpoints import list_folders, restore_all
from pipeline.training.loop import Training
from pipeline.training.validation import split_sums
from pipeline.training.workers import Workers
from tests.support.tiny_training import TINY, curve, free_port, group, start_processes, with_fields

pytestmark = pytest.mark.gpu

STILL = with_fields(model=replace(TINY.model, dropout=0.0))
"""Without dropout, whose masks differ between devices."""

ON_A_GPU = pytest.mark.parametrize("device", ["cuda"], indirect=True)
"""For tests that prove nothing on a CPU."""


@ON_A_GPU
def test_loop_walks_the_same_curve(device: str, dataset: EncodedDataset, tmp_path: Path) -> None:
    """Losses on both splits equal the CPU's in float32, at either speed."""
    for name, settings, on in (
        ("cpu", STILL, "cpu"),
        ("device", STILL, device),
        ("plain", STILL.model_copy(update={"speed": "plain"}), device),
    ):
        (tmp_path / name).mkdir()
        Training(Workers(device=on), dataset, settings, tmp_path / name).run()
    for name in ("device", "plain"):
        assert curve(tmp_path / name) == pytest.approx(curve(tmp_path / "cpu"), rel=1e-3)


@ON_A_GPU
def test_update_that_is_not_logged_does_not_wait(device: str, dataset: EncodedDataset, tmp_path: Path) -> None:
    """Prefetching, copying, computing and applying an update are queued without ever waiting for the device."""
    settings = with_fields(dtype="auto", log_updates=100, validation_updates=100)
    training = Training(Workers(device=device), dataset, settings, tmp_path)
    updates = list(training.updates.between(0, 3))
    for update in (updates[0], *updates):  # first-time compilation and allocation may wait
        training._update(update)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")  # waiting is one
    try:
        for update in updates:
            training._update(update)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    line = training.report.unread[-1].read_back()
    assert line["update"] == training.state.update == 7
    assert np.isfinite(line["loss"])


def _state(training: Training) -> list[Tensor]:
    """Returns the master weights, the compute copy and Adam's state."""
    step = training.step
    adam = step.adam.n_steps, step.adam.mean_P, step.adam.square_P
    return [tensor.detach() for tensor in (*step.master.parameters(), *step.model.parameters(), *adam)]


@pytest.mark.usefixtures("many_recoveries")
def test_checkpoint_brings_back_every_bit(device: str, dataset: EncodedDataset, tmp_path: Path) -> None:
    """Weights, their bfloat16 copy and Adam's state are restored on the device bit-identically."""
    settings = with_fields(dtype="bfloat16")
    group = Workers(device=device)
    training = Training(group, dataset, settings, tmp_path)
    with training.writer:
        training.train(until=3)
        training.writer.wait()
    *_, checkpoint = list_folders(tmp_path / "recovery")
    other = Training(group, dataset, settings.model_copy(update={"seed": 2}), tmp_path / "other")
    restore_all(Workers(), checkpoint, other.step)
    before, after = _state(training), _state(other)
    assert len(before) == len(after) == 2 * len(list(training.step.master.parameters())) + 3
    for ours, theirs in zip(after, before, strict=True):
        assert ours.device == theirs.device
        assert torch.equal(ours, theirs)


def test_validation_is_that_of_float64(device: str, dataset: EncodedDataset) -> None:
    """Loss, NLL and tokens of the dev split equal the same weights' in float64 on the CPU."""
    torch.manual_seed(0)
    training = Training(Workers(device=device), dataset, STILL, Path("unused"))
    split = EncodedSplit.open(dataset, "dev")
    sums = split_sums(training.step.model, split, smoothing=0.1)
    expected = split_sums(deepcopy(training.step.master).cpu().double(), split, smoothing=0.1)
    assert sums.device.type == device
    torch.testing.assert_close(sums.cpu(), expected, rtol=1e-5, atol=0)


SHORTAGES = {
    "the smallest part of an update does not fit .*; lower budget_tokens.*memory/0.pickle": (UserError, 0),
    "ran out after update 2: .*memory/0.pickle": (UserError, 2),
    "CUDA error: an illegal memory access": (RuntimeError, 0),
}


@pytest.mark.parametrize("message", SHORTAGES, ids=["before", "later", "another fault"])
def test_what_held_the_memory_that_ran_out_is_in_a_file(
    device: str, dataset: EncodedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    """The error names it. What ran out before the first update is repeated; a torch for CPUs cannot record it."""
    calls, cuda, (kind, done) = list[str](), torch.cuda.memory, SHORTAGES[message]
    if device == "cpu":
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(cuda, "_record_memory_history", lambda **_: calls.append("record"))
        monkeypatch.setattr(cuda, "_dump_snapshot", lambda name: Path(name).write_bytes(pickle.dumps(calls)))

    def accumulate(batch: Batch) -> None:
        calls.append("compute")
        if device == "cpu" or kind is RuntimeError:
            raise (torch.OutOfMemoryError if kind is UserError else RuntimeError)(message)
        torch.empty(10**15, device=device)

    training = Training(Workers(device=device), dataset, STILL, tmp_path)
    if done:
        training.train(until=done)
    training.step.accumulate = accumulate
    with training.writer, pytest.raises(kind, match=message):
        training.train()
    if kind is UserError:
        content = pickle.loads((tmp_path / ".temporary-memory" / "0.pickle").read_bytes())
        if device == "cpu":
            assert content[-2:] == (["compute", "record"] if done else ["record", "compute"])
        elif not done:
            assert "oom" in {event["action"] for trace in content["device_traces"] for event in trace}


class ThroughHost(Workers):
    """Workers whose gloo group sends tensors through the CPU, because NCCL needs a GPU per process."""

    def broadcast(self, tensor: Tensor) -> None:
        on_host = tensor.cpu()
        super().broadcast(on_host)
        tensor.copy_(on_host)

    def all_reduce(self, tensor: Tensor) -> Tensor:
        return tensor.copy_(super().all_reduce(tensor.cpu()))


def train_on_device(
    rank: int, size: int, port: int, device: str, dataset: EncodedDataset, settings: TrainingSettings, folder: Path
) -> None:
    make_deterministic()  # like the loop on a GPU: no operation may lack a deterministic kernel
    send, receive, received = dist.send, dist.recv, list[Tensor]()

    def receive_on_host(tensor: Tensor, source: int) -> None:
        received.append(tensor.cpu())
        receive(received[-1], source)
        tensor.copy_(received[-1])

    dist.__dict__.update(send=lambda tensor, target: send(tensor.cpu(), target), recv=receive_on_host)
    with group(rank, size, port):
        Training(ThroughHost(rank, size, device), dataset, settings, folder).run()
    assert bool(received) == (size == 2 and rank == 0), "sums are exchanged by other functions"


def test_exact_reduction_of_two_processes_on_one_device(device: str, dataset: EncodedDataset, tmp_path: Path) -> None:
    """In bfloat16, with dropout, three updates of two processes are bit-identical to one process's."""
    settings = with_fields(exact_reduction=True, dtype="bfloat16", updates=3)
    bits = []
    for size in (1, 2):
        folder = tmp_path / str(size)
        folder.mkdir()
        start_processes(train_on_device, (size, free_port(), device, dataset, settings, folder), size)
        checkpoint = folder / "recovery" / "00000003"
        bits.append([(checkpoint / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")])
    assert bits[0] == bits[1]
