"""A Ray cluster of a head without GPUs and a machine with two that Ray only counts (`pipeline.hardware.LOGICAL_GPUS`).

All of it runs in a separate process, because a process can join only one cluster. Placement, ranks, resources and
processes are Ray's own. Only the computation is on CPUs, and the communication by gloo.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import ray
import ray.train
from ray.cluster_utils import Cluster
from ray.train.torch import get_device

from pipeline.evaluation.decoding import decode
from pipeline.hardware import LOGICAL_GPUS
from pipeline.settings import DecodingSettings, TrainingSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Checkpoint, EncodedDataset, EvaluationSet, Hypotheses, TrainingRun
from pipeline.store.scratch import Scratch
from pipeline.training.on_ray import train
from workflows.engine.cluster import ON_HEAD, set_local_variables
from workflows.engine.joining import loopback_only

N_GPUS = 2
PATIENCE_S = 240
started: list[Cluster] = []
"""The cluster of this process."""


class Placed(NamedTuple):
    rank: int
    n_workers: int
    gpus: list[str]
    """The indices of its reserved GPUs."""
    device: str
    """Its device according to Ray Train."""
    visible: str
    """CUDA_VISIBLE_DEVICES."""
    cpus: float
    node: str


@dataclass
class RecordingScratch(Scratch):
    """Records where each worker is, before anything else, and the controllers on the head."""

    diary: Path
    head_raylet: int
    """Process id."""

    def on_this_node(self, folder: Path) -> Path:
        """Runs at each rank, and in the stage itself only for the vocabulary."""
        if folder.is_file():
            return folder
        worker, runtime = ray.train.get_context(), ray.get_runtime_context()
        placed = Placed(
            worker.get_world_rank(),
            worker.get_world_size(),
            runtime.get_accelerator_ids()["GPU"],
            str(get_device()),
            os.environ["CUDA_VISIBLE_DEVICES"],
            runtime.get_assigned_resources()["CPU"],
            runtime.get_node_id(),
        )
        (self.diary / f"rank-{placed.rank}.json").write_text(json.dumps(placed))
        (self.diary / "head.json").write_text(json.dumps(titles_below(self.head_raylet)))
        return folder

    @property
    def placed(self) -> list[Placed]:
        return [Placed(*json.loads(path.read_text())) for path in sorted(self.diary.glob("rank-*.json"))]


def titles_below(pid: int) -> list[str]:
    lines = [process.cmdline() for process in psutil.Process(pid).children(recursive=True)]
    return [line[0].removeprefix("ray::") for line in lines if line and line[0].startswith("ray::")]


def start() -> None:
    os.environ.pop("RAY_ADDRESS", None)
    set_local_variables()
    os.environ |= {LOGICAL_GPUS: "1", "RAY_TRAIN_V2_ENABLED": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    with loopback_only():
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        started.append(cluster)
        cluster.add_node(num_cpus=4, num_gpus=N_GPUS)
        ray.init(cluster.address, log_to_driver=False)


def stop() -> None:
    ray.shutdown()
    started.pop().shutdown()


def address() -> str:
    return str(started[0].address)


def raylet(node: Any) -> int:
    (process,) = node.all_processes["raylet"]
    return int(process.process.pid)


def training(dataset: EncodedDataset, settings: TrainingSettings, folder: Path, emit: Any = None) -> Any:
    for new in (folder, diary := folder.with_name(f"{folder.name}-diary")):
        new.mkdir()
    scratch = RecordingScratch(folder, diary, raylet(started[0].head_node))
    stage = ray.remote(num_cpus=0, resources=ON_HEAD)(train)
    context = Context(folder, emit or (lambda event: None), shared=scratch)
    return stage.remote(context, dataset, settings), scratch


def trained(dataset: EncodedDataset, settings: TrainingSettings, folder: Path) -> tuple[list[Placed], list[str], str]:
    reference, scratch = training(dataset, settings, folder)
    ray.get(reference)
    all_free()
    (node,) = [node["NodeID"] for node in ray.nodes() if node["Resources"].get("GPU")]
    return scratch.placed, json.loads((scratch.diary / "head.json").read_text()), node


def all_free() -> None:
    until(lambda: ray.available_resources().get("GPU") == N_GPUS, "the GPUs are not free again")


def until(happened: Callable[[], Any], otherwise: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < end_s, otherwise
        time.sleep(0.1)


def _hold(path: Path, event: dict[str, Any]) -> None:
    """Holds a run at update 3 until a file exists. Use it as `emit`."""
    if event.get("step", 0) >= 3:
        path.with_name("held").touch()
        until(path.exists, f"{path} never came")


def decoded_beside(
    dataset: EncodedDataset,
    settings: TrainingSettings,
    checkpoint: Checkpoint,
    text: EvaluationSet,
    decoding: DecodingSettings,
    folder: Path,
) -> tuple[TrainingRun, Hypotheses, list[Placed]]:
    reference, scratch = training(dataset, settings, folder / "run", partial(_hold, folder / "decoded"))
    until((folder / "held").exists, "the run did not begin")
    (folder / "hypotheses").mkdir()
    hypotheses = decode(Context(folder / "hypotheses"), checkpoint, text, decoding)
    assert ray.available_resources().get("GPU", 0) <= 1, "the run does not hold its GPU"
    (folder / "decoded").touch()
    run: TrainingRun = ray.get(reference, timeout=PATIENCE_S)
    all_free()
    return run, hypotheses, scratch.placed


class Seen(NamedTuple):
    """The active tasks of both nodes' processes, and the maximum number of reserved GPUs."""

    on_head: set[str]
    on_node: set[str]
    gpus: float


def watched(command: list[str]) -> Seen:
    (node,) = started[0].worker_nodes
    on_head, on_node, gpus = set(), set(), 0.0
    with subprocess.Popen([sys.executable, *command, "--address", address()], stdout=subprocess.DEVNULL) as driver:
        while driver.poll() is None:
            with suppress(psutil.Error):
                on_head |= set(titles_below(raylet(started[0].head_node)))
                on_node |= set(titles_below(raylet(node)))
            gpus = max(gpus, N_GPUS - ray.available_resources().get("GPU", 0))
            time.sleep(0.1)
    assert driver.returncode == 0
    return Seen(on_head, on_node, gpus)
