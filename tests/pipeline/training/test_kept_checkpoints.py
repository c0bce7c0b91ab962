"""The averaged checkpoints depend only on the number of updates: not on kills, nor on a machine's speed."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.evaluation.averaging import average
from pipeline.settings import AveragingSettings, TrainingSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import EncodedDataset, TrainingRun
from pipeline.training.loop import Training
from pipeline.training.workers import Workers
from tests.support.tiny_training import start_processes, weights, with_fields

LIKE_BASE = with_fields(
    updates=134, budget_tokens=300, checkpoint_updates=2, keep_checkpoints=5, validation_updates=60, log_updates=5
)
"""The paper's base (a checkpoint per 10 minutes, 1,500 of 100,000 updates), 750 times as short."""
KILLS = (70, 128, 131)
"""One before the first kept checkpoint, two between the last five."""


def train(rank: int, dataset: EncodedDataset, settings: TrainingSettings, folder: Path, killed_at: int | None) -> None:
    """Trains in a separate process, which kills itself as soon as an update is queued."""
    torch.set_num_threads(1)
    if killed_at is not None:
        updated = Training._update

        def until_killed(training: Training, update: Any) -> None:
            updated(training, update)
            if training.state.update == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)

        Training._update = until_killed
    TrainingRun(folder).write(Training(Workers(), dataset, settings, folder).run())


def averaged(run: TrainingRun, dataset: EncodedDataset, folder: Path) -> tuple[object, bytes]:
    """Averages like base, and returns the updates and the bytes of the mean."""
    folder.mkdir()
    (run.folder / "joint.model").write_bytes((dataset.folder / "joint.model").read_bytes())
    checkpoint = average(Context(folder), run, AveragingSettings(last=5))
    return checkpoint.load().updates, (checkpoint.folder / "model.safetensors").read_bytes()


def test_kills_change_no_bit_of_the_average(dataset: EncodedDataset, tmp_path: Path) -> None:
    """A run like base's, killed three times, averages the same updates as an undisturbed one, bit-identically."""
    results = []
    for name, kills in (("undisturbed", ()), ("killed", KILLS)):
        folder = tmp_path / name
        folder.mkdir()
        for killed_at in kills:
            with pytest.raises(torch.multiprocessing.ProcessExitedException, match="SIGKILL"):
                start_processes(train, (dataset, LIKE_BASE, folder, killed_at), 1)
        start_processes(train, (dataset, LIKE_BASE, folder, None), 1)
        kept = [weights(folder, update) for update in LIKE_BASE.kept_updates]
        results.append((kept, *averaged(TrainingRun(folder), dataset, tmp_path / f"{name} averaged")))
    assert results[0][1] == (126, 128, 130, 132, 134)
    assert results[0] == results[1]
    assert len(set(results[0][0])) == 5
