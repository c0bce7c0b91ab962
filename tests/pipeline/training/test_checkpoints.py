"""pipeline.training.checkpoints: damage is noticed, and the checkpoint of another training is refused."""

import json
import logging
import os
import shutil
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from model.training_step import TrainingStep
from model.transformer import Transformer
from pipeline.errors import UserError
from pipeline.store.artifacts import EncodedDataset
from pipeline.training.checkpoints import CheckpointWriter, TrainingState, find_damage, list_folders, load_newest
from pipeline.training.loop import run
from pipeline.training.worker_group import WorkerGroup
from tests.support.tiny_training import TINY, curve, weights, with_fields

pytestmark = pytest.mark.usefixtures("one_thread")


def identity(folder: Path) -> dict[str, Any]:
    """Reads the identity of the training from its checkpoints."""
    found: dict[str, Any] = json.loads((list_folders(folder)[0] / "state.json").read_text())["identity"]
    return found


@pytest.fixture
def trained(two_workers: Path, tmp_path: Path) -> Path:
    """Copies a finished training, so that a test may damage it."""
    shutil.copytree(two_workers, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("harm", ["model.safetensors", "optimizer.safetensors", "state.json", "checksums.json"])
def test_damaged_checkpoint_is_skipped(harm: str, trained: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If one bit of any file of the newest checkpoint flips, a warning names the file and the one before is used."""
    path = trained / "checkpoints" / f"{TINY.updates:08d}" / harm
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        found = load_newest(trained / "checkpoints", identity(trained / "checkpoints"))
    assert found is not None
    assert found[0].name == "00000006"
    assert found[1].update == 6
    assert harm in caplog.text
    assert str(path.parent) in caplog.text


def test_damaged_checkpoint_costs_only_its_updates(trained: Path, dataset: EncodedDataset) -> None:
    """If the newest one is truncated, training continues from the one before and ends with the same curve."""
    before, path = curve(trained), trained / "checkpoints" / f"{TINY.updates:08d}" / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    run(WorkerGroup(), dataset, TINY, trained)
    assert curve(trained) == pytest.approx(before, rel=1e-4)
    assert find_damage(path.parent) is None


def test_missing_file_is_damage(trained: Path) -> None:
    """A checkpoint without one of its files, or without its checksums, is damaged."""
    newest, *_ = reversed(list_folders(trained / "checkpoints"))
    (newest / "optimizer.safetensors").unlink()
    assert find_damage(newest) == "optimizer.safetensors is missing"
    (newest / "checksums.json").unlink()
    assert find_damage(newest) == "checksums.json is missing"


def test_what_a_killed_write_leaves_is_no_checkpoint(trained: Path) -> None:
    """An unfinished folder is ignored, and the newest checkpoint stays the newest."""
    aside = trained / "checkpoints" / ".making-00000012"
    aside.mkdir()
    (aside / "model.safetensors").write_bytes(b"half")
    found = load_newest(trained / "checkpoints", identity(trained / "checkpoints"))
    assert found is not None
    assert found[1].update == TINY.updates


def test_checkpoint_is_of_the_moment_it_was_begun(tmp_path: Path) -> None:
    """Later changes to weights and state are not in it, and what a killed process left behind is removed."""
    step = TrainingStep(Transformer(TINY.model), TINY.optimizer, torch.float32)
    step.accumulate(torch.tensor([[5, 6, 3]]), torch.tensor([[7, 3]]), seed=1)
    step.apply(1, n_tokens=2)
    (tmp_path / ".making-00000004").mkdir()
    state, before = TrainingState(update=5), deepcopy(step.master.state_dict())
    with CheckpointWriter(tmp_path, keep=2) as writer:
        writer.begin(step, state)
        state.update = 6
        with torch.no_grad():
            for weight in step.master.parameters():
                weight.zero_()
    written = safetensors.torch.load_file(tmp_path / "00000005" / "model.safetensors")
    assert written.keys() == before.keys()
    assert all(torch.equal(written[name], before[name]) for name in before)
    assert json.loads((tmp_path / "00000005" / "state.json").read_text())["update"] == 5
    assert [path.name for path in tmp_path.iterdir()] == ["00000005"]


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/bin/mount").exists(), reason="needs the right to mount a disk")
def test_full_disk_keeps_the_last_good_checkpoint(tmp_path: Path, dataset: EncodedDataset) -> None:
    """On a real file system with room for one checkpoint, training ends in one line and later continues there."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("this machine does not let us mount a disk")
    try:
        with pytest.raises(UserError, match=r"the disk of .* is full.*free some space.*run the same command again"):
            run(WorkerGroup(), dataset, TINY, disk)
        (kept,) = (disk / "checkpoints").iterdir()
        assert find_damage(kept) is None
        subprocess.run(["mount", "-o", "remount,size=9m", str(disk)], check=True)
        assert run(WorkerGroup(), dataset, TINY, disk).checkpoints[-1] == TINY.updates
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_other_settings_are_refused_by_name(trained: Path, dataset: EncodedDataset) -> None:
    """The line says which setting differs and how, and nothing is overwritten."""
    before = weights(trained)
    with pytest.raises(UserError, match="seed was 1 and is 2"):
        run(WorkerGroup(), dataset, with_fields(seed=2), trained)
    assert weights(trained) == before


def test_no_checkpoint_is_no_error(tmp_path: Path) -> None:
    """A new training finds nothing to continue from."""
    assert load_newest(tmp_path / "checkpoints", {}) is None
