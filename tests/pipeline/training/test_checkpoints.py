"""pipeline.training.checkpoints: damage is noticed, and another run's checkpoint is rejected."""

import errno
import json
import logging
import os
import shutil
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import safetensors.torch
import torch

from model.batch import Batch
from model.training_step import TrainingStep
from model.transformer import Transformer
from pipeline.artifacts import EncodedDataset
from pipeline.errors import LockLostError, UserError
from pipeline.store.artifact import Artifact
from pipeline.store.build import Build
from pipeline.text.encoding import EncodedSplit, write_shard
from pipeline.training.checkpoints import CheckpointWriter, TrainingState, list_folders, load_newest
from pipeline.training.loop import Training
from pipeline.training.workers import Workers
from tests.support.tiny_training import TINY, curve, metrics, train_as, weights, with_fields


@pytest.fixture(scope="module")
def stopped(dataset: EncodedDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run stopped after update 6, with recovery checkpoints of updates 5 and 6."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointWriter, "recovery_is_due", True)
        train_as(Workers(), dataset, TINY, folder, until=6)
    return folder


@pytest.fixture
def trained(stopped: Path, tmp_path: Path) -> Path:
    """A copy of the run that tests may damage."""
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    return tmp_path


def newest(folder: Path) -> tuple[Path, TrainingState] | None:
    identity = json.loads((folder / "recovery/00000005/state.json").read_text())["identity"]
    return load_newest(folder, identity, TINY.kept_updates)


@pytest.mark.parametrize(
    "harm",
    [
        "recovery/00000006/model.safetensors",
        "recovery/00000006/optimizer.safetensors",
        "recovery/00000006/state.json",
        "recovery/00000006/manifest.json",
        "checkpoints/00000006/model.safetensors",
    ],
)
def test_damaged_checkpoint_is_skipped(harm: str, trained: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If one bit of the newest checkpoint is flipped, a warning names the file and the previous checkpoint is used.

    What a killed write leaves is no checkpoint.
    """
    path = trained / harm
    (trained / "recovery" / ".making-00000012").mkdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        found = newest(trained)
    assert found[0].name == "00000005"
    assert found[1].update == 5
    assert path.name in caplog.text
    assert str(path.parent) in caplog.text


def busy_stream(device: torch.device, stream: Any = torch.cuda.Stream) -> torch.cuda.Stream:
    with torch.cuda.stream(side := stream(device)):
        torch.cuda._sleep(10**9)  # half a second
    return side


@pytest.mark.gpu
def test_checkpoint_is_of_the_moment_it_was_begun(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It excludes later updates, though a GPU's copy is late, and changes to the state; leftovers are removed."""
    step = TrainingStep(Transformer(TINY.model).to(device), TINY.optimizer, torch.float32)
    batch = Batch.padded(torch.tensor([[5, 6, 3]]), torch.tensor([[7, 3]]), torch.float32).keyed(torch.arange(1))
    step.accumulate(batch)
    step.apply(1, n_tokens=2)
    (tmp_path / "recovery" / ".making-00000004").mkdir(parents=True)
    state, before = TrainingState(update=5), deepcopy(step.master.state_dict())
    monkeypatch.setattr(torch.cuda, "Stream", busy_stream)
    with CheckpointWriter(tmp_path) as writer:
        writer.begin(step, state, kept=True, recovery=True)
        state.update = 6
        step.accumulate(batch)
        step.apply(2, n_tokens=2)
    for kind in ("checkpoints", "recovery"):
        assert [path.name for path in (tmp_path / kind).iterdir()] == ["00000005"]
        written = safetensors.torch.load_file(tmp_path / kind / "00000005" / "model.safetensors")
        assert written.keys() == before.keys()
        assert all(torch.equal(written[name], before[name].cpu()) for name in before)
    assert json.loads((tmp_path / "recovery/00000005/state.json").read_text())["update"] == 5


@pytest.mark.usefixtures("many_recoveries")
def test_what_cannot_be_kept_beside_is_told(tmp_path: Path) -> None:
    """An error of the writer's thread is raised by the run: at the next checkpoint, or at its end."""
    step = TrainingStep(Transformer(TINY.model), TINY.optimizer, torch.float32)
    build = Unwilling(tmp_path)
    with CheckpointWriter(tmp_path / "checkpoints", build=build) as writer:
        writer.keep_beside("metrics.jsonl")
        with pytest.raises(PermissionError, match=r"metrics\.jsonl"):
            writer.begin(step, TrainingState(update=5), kept=True, recovery=True)
    with pytest.raises(PermissionError, match="later"), CheckpointWriter(tmp_path, build=build) as writer:
        writer.keep_beside("later")
    writer = CheckpointWriter(tmp_path, build=build)
    writer.keep_beside("beside another error, which is raised already")
    writer.__exit__(ValueError, ValueError("another"), None)


class Unwilling(Build):
    """A folder whose files cannot be kept."""

    def keep(self, part: str) -> None:
        raise PermissionError(13, "Permission denied", part)


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/bin/mount").exists(), reason="needs the right to mount a disk")
def test_full_disk_keeps_the_last_good_checkpoint(tmp_path: Path, dataset: EncodedDataset) -> None:
    """On a real file system with room for one checkpoint, a run ends with a one-line error and later resumes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("this machine does not let us mount a disk")
    try:
        with pytest.raises(
            UserError, match=r"cannot be written \(No space .* GB free\); free some space.*run the same command again"
        ):
            Training(Workers(), dataset, TINY, disk).run()
        written = [path for kind in ("checkpoints", "recovery") for path in list_folders(disk / kind)]
        assert written
        assert [Artifact(path).damage() for path in written] == [None] * len(written)
        subprocess.run(["mount", "-o", "remount,size=9m", str(disk)], check=True)
        assert Training(Workers(), dataset, TINY, disk).run().checkpoints[-1] == TINY.updates
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_another_run_s_folder_is_refused(trained: Path, dataset: EncodedDataset, tmp_path: Path) -> None:
    """The line has the differing setting and both values, and nothing is overwritten.

    A run's identity depends on every token, not only on lengths, at every rank.
    """
    other = EncodedDataset(shutil.copytree(dataset.folder, tmp_path / "other"))
    path = other.folder / "train" / "00001.arrow"
    source, target = (column.combine_chunks() for column in pa.ipc.open_file(path).read_all().columns)
    values = target.values.to_numpy().copy()
    values[0] += 1
    target = pa.ListArray.from_arrays(target.offsets, pa.array(values))
    record = other.read_json("dataset.json")
    record["splits"]["train"][1] |= write_shard(path, source, target, None)
    other.write_json("dataset.json", record)
    splits = [EncodedSplit.open(one, "train") for one in (dataset, other)]
    assert np.array_equal(splits[0].target_lengths, splits[1].target_lengths)
    before = weights(trained, 6)
    differing = ((dataset, with_fields(seed=2), "seed was 1 and is 2"), (other, TINY, "dataset was"))
    for text, settings, message in differing:
        with pytest.raises(UserError, match=f"belongs to another run: .*{message}"):
            Training(Workers(), text, settings, trained).run()
        assert weights(trained, 6) == before
    Training(Workers(), EncodedDataset(shutil.copytree(dataset.folder, tmp_path / "same")), TINY, trained).run()


def _aside(folder: Path) -> Path:
    (aside,) = folder.parent.glob(f".aside-{folder.name}-*")
    return aside


@pytest.mark.usefixtures("many_recoveries")
def test_a_damaged_checkpoint_that_all_rely_on_starts_over(
    trained: Path, dataset: EncodedDataset, one_worker: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the weights of update 3 no recovery would end in the same average, so the run starts over.

    The old files are set aside with a warning and do not disturb new checkpoints.
    """
    shutil.rmtree(trained / "checkpoints/00000003")
    kept = weights(trained, 6)
    assert newest(trained) is None
    with caplog.at_level(logging.WARNING):
        train_as(Workers(), dataset, TINY, trained, until=4)
    aside = _aside(trained)
    assert str(aside) in caplog.text
    assert (aside / "checkpoints/00000006/model.safetensors").read_bytes() == kept
    assert [folder.name for folder in list_folders(aside / "recovery")] == ["00000005", "00000006"]
    assert [folder.name for folder in list_folders(trained / "recovery")] == ["00000003", "00000004"]
    Training(Workers(), dataset, TINY, trained).run()
    assert curve(trained) == curve(one_worker)


@pytest.mark.usefixtures("many_recoveries")
def test_a_damaged_recovery_is_set_aside(trained: Path, dataset: EncodedDataset) -> None:
    """A damaged recovery checkpoint does not count as one of the two kept, so a spare always remains."""
    (trained / "recovery/00000006/state.json").write_text("{}")
    train_as(Workers(), dataset, TINY, trained, until=6)
    assert (_aside(trained) / "recovery/00000006/state.json").read_text() == "{}"
    assert [folder.name for folder in list_folders(trained / "recovery")] == ["00000005", "00000006"]
    assert newest(trained) is not None


def test_a_checkpoint_that_cannot_be_read_ends_the_training(
    trained: Path, dataset: EncodedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be readable again soon, so no checkpoint counts as damaged, and nothing is written."""
    whole = Path.open

    def fail(path: Path, *arguments: Any, **named: Any) -> Any:
        if path.name == "optimizer.safetensors":
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return whole(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", fail)
    before = sorted(trained.rglob("*"))
    with pytest.raises(UserError, match=r"optimizer\.safetensors cannot be read \(Stale file handle\)"):
        Training(Workers(), dataset, TINY, trained)
    assert sorted(trained.rglob("*")) == before


def test_a_training_that_another_command_has_taken_over_writes_and_removes_nothing(
    trained: Path, dataset: EncodedDataset
) -> None:
    """When a disconnected process returns, metrics and checkpoints already belong to its successor."""
    lost = Build(trained, is_ours=lambda: False)
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    training = Training(Workers(), dataset, TINY, trained, build=lost)
    with pytest.raises(LockLostError, match=r"^another command has taken over"):
        training.run()
    writer = CheckpointWriter(trained, lost)
    for act in (lambda: writer.prune(1), lambda: writer._publish("recovery", 6, {}, {})):
        with pytest.raises(LockLostError):
            act()
    assert {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()} == before


def test_damaged_metrics_do_not_end_a_training(
    trained: Path, dataset: EncodedDataset, one_worker: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A line with an invalid byte and a line without an object are dropped with a warning, and no other line."""
    path = trained / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[0], lines[1] = lines[0][:5] + b"\xff" + lines[0][5:], b"5"
    path.write_bytes(b"\n".join(lines))
    with caplog.at_level(logging.WARNING):
        Training(Workers(), dataset, TINY, trained).run()
    assert "dropped damaged lines 1, 2" in caplog.text
    assert metrics(trained) == metrics(one_worker)[2:]
