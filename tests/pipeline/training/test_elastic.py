"""A run with `--workers 1:2` on a real cluster whose second node comes and goes is bit-identical to an undisturbed one.

pytest -m slow tests/pipeline/training/test_elastic.py
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from ray.cluster_utils import Cluster

from pipeline.artifacts import EncodedDataset
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Artifact
from pipeline.training.checkpoints import list_folders
from pipeline.training.loop import Training
from pipeline.training.workers import Workers
from tests.support.tiny_training import PIECES, published
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(900)]

PATIENCE_S = 180
DEADLINE_S = 5
"""Notice before the node is removed."""
SETTINGS = f"""
vocabulary.size = {PIECES}
[recipes.base.training]
model = {{n_layers = 2, d_model = 64, d_ff = 256, n_heads = 2, d_k = 32, d_v = 32, dropout = 0.1}}
updates = 100000
budget_tokens = 2400
dtype = "float32"
checkpoint_updates = 200
keep_checkpoints = 5
validation_updates = 100000
log_updates = 7
device = "cpu"
"""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Starts a head node with one CPU, to which nodes can be added."""
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    folder = tempfile.mkdtemp(prefix="elastic-")  # short, for the paths of sockets
    monkeypatch.setenv("RAY_TMPDIR", folder)  # so that no other `ray.init()` finds this cluster
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield started
    started.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


class Watched:
    def __init__(self, dataset: EncodedDataset, cluster: Cluster, folder: Path, *options: str) -> None:
        self.folder = folder / ".making-out"
        config, text = folder / "settings.toml", published(dataset, folder / "dataset").folder
        config.write_text(SETTINGS)
        command = [sys.executable, "-m", "workflows.cli", "train", str(text), "--out", str(folder / "out")]
        command += ["--config", str(config), "--address", cluster.address, *options]
        self.driver = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def lines(self) -> list[dict[str, Any]]:
        path = self.folder / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def until(self, happened: Callable[[], Any], what: str) -> Any:
        return until(happened, PATIENCE_S, lambda: f"waited in vain for {what}", self.driver)

    def until_workers(self, workers: int, after: int) -> int:
        """Waits until exactly `workers` workers train, after update `after`, and returns the update."""

        def came() -> int:
            (newest,) = self.lines()[-1:] or [{"workers": 0}]
            return newest["update"] if newest["workers"] == workers and newest["update"] > after else 0

        return self.until(came, f"{workers} workers at work")


def test_a_run_continues_on_the_nodes_that_are_left(cluster: Cluster, dataset: EncodedDataset, tmp_path: Path) -> None:
    """If as many workers as fit are asked for, the one that fits goes on alone."""
    node = cluster.add_node(num_cpus=1)
    run = Watched(dataset, cluster, tmp_path, "--workers", "0")
    try:
        update = run.until_workers(2, after=205)
        cluster.remove_node(node, allow_graceful=False)
        run.until_workers(1, after=update)
    finally:
        run.driver.terminate()
        run.driver.wait(60)


def test_nodes_come_and_go_and_weights_do_not_tell(cluster: Cluster, dataset: EncodedDataset, tmp_path: Path) -> None:
    """Two workers become one when a node is killed, two when one joins, and one when a machine is preempted."""
    node = cluster.add_node(num_cpus=1)
    run = Watched(dataset, cluster, tmp_path, "--workers", "1:2", "--exact-reduction")
    try:
        update = run.until_workers(2, after=205)
        cluster.remove_node(node, allow_graceful=False)
        update = run.until_workers(1, after=update)
        node = cluster.add_node(num_cpus=1)
        update = run.until_workers(2, after=update)

        drain = ["--node-id", node.node_id, "--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "test"]
        drain += ["--deadline-remaining-seconds", str(DEADLINE_S)]
        ray_command = Path(sys.executable).with_name("ray")
        subprocess.run([ray_command, "drain-node", "--address", cluster.address, *drain], check=True)
        run.until_workers(1, after=update)
    finally:
        run.driver.terminate()
        run.driver.wait(60)
    newest = [path for path in list_folders(run.folder / "recovery") if Artifact(path).damage() is None][-1]
    update = int(newest.name)
    settings = json.loads((newest / "state.json").read_text())["identity"]
    settings.pop("dataset")
    (tmp_path / "alone").mkdir()
    undisturbed = Training(Workers(), dataset, TrainingSettings(**settings), tmp_path / "alone")
    with undisturbed.writer:
        undisturbed.train(until=update)
    weights = safetensors.torch.load_file(newest / "model.safetensors")
    alone = undisturbed.step.master.state_dict()
    assert weights.keys() == alone.keys()
    assert all(torch.equal(weights[name], alone[name]) for name in weights)
