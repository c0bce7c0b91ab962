"""pipeline.training.devices: one dtype for all workers, kept for the whole run and recorded in checkpoints.

CPUs are emulated by patching torch's report and `bfloat16_speedup`. Everything else is real.
"""

import json
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.artifacts import EncodedDataset, TrainingRun
from pipeline.errors import UserError
from pipeline.hardware import device_name
from pipeline.records import TrainingRecord
from pipeline.training import devices
from pipeline.training.checkpoints import TrainingState, list_folders
from pipeline.training.workers import Workers
from tests.support.baselines import NAMES, config_of
from tests.support.tiny_training import emulate_cpu, train_as, train_in_processes, weights, with_fields
from workflows.profiles.translation import WMT14
from workflows.tables.table3_rows import rows as rows_of

pytestmark = [pytest.mark.spawns, pytest.mark.usefixtures("many_recoveries")]

AUTO = with_fields(dtype="auto")
Cpu = Callable[..., None]
THIS_MACHINE = f"{platform.node()} ({device_name('cpu')})"


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> Cpu:
    """`cpu(False)` emulates a CPU without native bfloat16 until the test ends."""
    return partial(emulate_cpu, replace=monkeypatch.setattr)


def finish(dataset: EncodedDataset, folder: Path) -> TrainingRecord:
    train_as(Workers(), dataset, AUTO, folder)
    return TrainingRun(folder).load()


def test_two_workers_compute_in_the_type_of_both(two_workers: Path, dataset: EncodedDataset, tmp_path: Path) -> None:
    """If one of two CPUs has no bfloat16, both compute in float32, and the weights are float32's."""
    train_in_processes(2, dataset, AUTO, tmp_path, native=(True, False))
    assert json.loads((list_folders(tmp_path / "recovery")[-1] / "state.json").read_text())["dtype"] == "float32"
    assert weights(tmp_path) == weights(two_workers)


@pytest.mark.parametrize(
    ("fields", "compiled", "packed"),
    [
        ({}, True, True),
        ({"exact_reduction": True}, False, True),
        ({"dtype": "float32"}, True, False),
        ({"speed": "plain"}, False, False),
    ],
)
def test_speed_is_negotiated(
    fields: dict[str, Any], compiled: bool, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a device compiles and packs, a run does both as far as its settings allow, unless the speed is plain."""
    for what in ("compiles", "can_pack"):
        monkeypatch.setattr(devices, what, lambda *_: True)
    settings = with_fields(**{"dtype": "bfloat16", **fields})
    negotiated = devices.negotiate(Workers(), settings, TrainingState(), tmp_path)
    assert (negotiated.compiled, negotiated.form == "packed") == (compiled, packed)
    assert negotiated.devices[0].can_pack == packed, "kernels are compiled that the run does not use"


def test_only_models_that_the_kernels_compute_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU with bfloat16 packs all of Table 3 but A1 (a head of 512 columns), if the kernels work on it.

    Models that are no Transformers are neither packed nor compiled.
    """
    for name in ("multiplies_bfloat16", "attention_kernels_work", "compiles"):
        monkeypatch.setattr(devices, name, lambda *_: True)
    others = {name: config_of(name) for name in NAMES}
    models = {row.name: row.training.model for row in rows_of(WMT14.grid)} | others
    packed = {name for name, model in models.items() if devices.can_pack("cuda:0", model)}
    assert packed == models.keys() - {"A1", *NAMES}
    assert not any(devices.WorkerDevice.here("cpu", with_fields(model=model)).compiles for model in others.values())
    monkeypatch.setattr(devices, "attention_kernels_work", lambda *_: False)
    assert not any(devices.can_pack("cuda:0", model) for model in models.values())


def test_float32_goes_on_in_float32(one_worker: Path, dataset: EncodedDataset, tmp_path: Path, cpu: Cpu) -> None:
    """A run begun without bfloat16 and finished on a CPU with it is bit-identical to float32."""
    cpu(False)
    train_as(Workers(), dataset, AUTO, tmp_path, until=6)
    cpu(True)
    record = finish(dataset, tmp_path)
    assert weights(tmp_path) == weights(one_worker)
    assert [segment.dtype for segment in record.segments] == ["float32"]
    assert [device.matmul_flop_s for segment in record.segments for device in segment.devices] == [None]  # on CPUs


def test_bfloat16_goes_on_in_bfloat16_or_not_at_all(dataset: EncodedDataset, tmp_path: Path, cpu: Cpu) -> None:
    """Without native bfloat16, the error has the machine and the remedy. With it, results are bit-identical."""
    cpu(True)
    finish(dataset, tmp_path / "whole")
    train_as(Workers(), dataset, AUTO, tmp_path, until=6)
    before = weights(tmp_path, 6)
    cpu(False)
    with pytest.raises(UserError) as caught:
        finish(dataset, tmp_path)
    assert str(caught.value) == (
        f"this run began in bfloat16, which {THIS_MACHINE} cannot multiply natively; continue it on machines that "
        f"can, or move {tmp_path / 'recovery'} elsewhere to start over in float32"
    )
    assert weights(tmp_path, 6) == before
    cpu(True)
    assert finish(dataset, tmp_path).segments[-1].dtype == "bfloat16"
    assert weights(tmp_path) == weights(tmp_path / "whole")
    cpu(False)
    assert finish(dataset, tmp_path).segments[-1].dtype == "bfloat16"  # nothing is left to compute


def test_one_worker_without_bfloat16_stops_the_group_that_continues(dataset: EncodedDataset, tmp_path: Path) -> None:
    """A group that adds a CPU without bfloat16 ends with that error, and no worker waits for another."""
    train_in_processes(1, dataset, AUTO, tmp_path, until=3, native=(True,))
    with pytest.raises(torch.multiprocessing.ProcessRaisedException, match=r"began in bfloat16, which .* cannot"):
        train_in_processes(2, dataset, AUTO, tmp_path, native=(True, False))
