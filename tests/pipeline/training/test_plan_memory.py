"""Memory of eight workers on one node with the plans of two epochs (slow, `-s` prints a table).

AIAYN_PLAN_PAIRS=40800000 pytest -m slow -s tests/pipeline/training/test_plan_memory.py    # like English-French
"""

import json
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.corpora.lengths import LENGTHS, draw_lengths
from pipeline.settings import TrainingSettings
from pipeline.store.artifacts import EncodedDataset
from pipeline.text.encoding import EncodedSplit, id_lists, write_shard
from pipeline.training.updates import Updates
from pipeline.training.workers import Workers
from tests.support.tiny_training import start_processes

WORKERS = int(os.environ.get("AIAYN_PLAN_WORKERS", "8"))
PAIRS = int(os.environ.get("AIAYN_PLAN_PAIRS", "3000000"))
SHARD_PAIRS = 100_000


class Node(Workers):
    """A worker among identical ones."""

    def gather_objects(self, value: Any) -> list[Any]:
        """Returns this worker's value for all."""
        return [value] * self.size


def private_bytes() -> int:
    """Returns this process's memory that is not backed by files."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def hold_plans(rank: int, dataset: EncodedDataset, folder: Path) -> None:
    """Measures one worker that plans epoch 0 and reads an update while epoch 1 is planned."""
    tempfile.tempdir = str(folder)
    torch.zeros(1)
    base_bytes, began_s, peaks_bytes, done = private_bytes(), time.monotonic(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            peaks_bytes.append(private_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    updates = Updates(EncodedSplit.open(dataset, "train"), TrainingSettings(), Node(rank, WORKERS), torch.float32)
    first_s = time.monotonic() - began_s
    reading = updates.between(0, 2 * updates.in_epoch)
    assert next(reading).mine
    updates._plans[1].result()
    done.set()
    watcher.join()
    measured = {
        "base": base_bytes,
        "standing": private_bytes() - base_bytes,
        "peak": max(peaks_bytes) - base_bytes,
        "first_s": first_s,
        "both_s": time.monotonic() - began_s,
    }
    (folder / f"{rank}.json").write_text(json.dumps(measured))
    while len([*folder.glob("*.json")]) < WORKERS:
        time.sleep(0.1)


def generated(folder: Path, pairs: int) -> EncodedDataset:
    """Writes a dataset with WMT14's lengths and no text: all ids are the same."""
    dataset, random = EncodedDataset(folder), np.random.default_rng(1)
    (folder / "train").mkdir(parents=True)
    counts = []
    for number, begin in enumerate(range(0, pairs, SHARD_PAIRS)):
        lengths = draw_lengths(LENGTHS["wmt14"], min(SHARD_PAIRS, pairs - begin), random)
        sides = [id_lists(np.full(side.sum(), 3, np.uint16), side) for side in lengths]
        counts.append(write_shard(folder / "train" / f"{number:05d}.arrow", sides[0], sides[1], 256))
    dataset.write_json("dataset.json", {"splits": {"train": counts}})
    return dataset


@pytest.mark.slow
def test_eight_workers_of_a_node_hold_one_plan(tmp_path: Path) -> None:
    """Each keeps less than 2 private bytes per pair, and only the planning worker peaks, below 30 bytes per pair."""
    dataset, folder = generated(tmp_path / "dataset", PAIRS), tmp_path / "node"
    folder.mkdir()
    start_processes(hold_plans, (dataset, folder), WORKERS)
    measured = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(WORKERS)]
    print(f"\n{PAIRS:,} pairs, MB of private memory beyond Python and torch, and seconds")
    print("rank  base  standing   peak  first plan  both plans")
    for rank, of_rank in enumerate(measured):
        base, standing, peak = (of_rank[name] / 1e6 for name in ("base", "standing", "peak"))
        print(f"{rank:4} {base:5.0f} {standing:9.0f} {peak:6.0f} {of_rank['first_s']:11.1f} {of_rank['both_s']:11.1f}")
    peaks_bytes = sorted(of_rank["peak"] for of_rank in measured)
    assert peaks_bytes[-1] < 30 * PAIRS + 60e6, "too much memory while planning"
    assert peaks_bytes[-3] < 2 * PAIRS + 5e6, "more than one worker has planned an epoch"
