"""A Ray cluster of a head without GPUs and a machine with some that Ray only counts (`pipeline.hardware.LOGICAL_GPUS`).

All of it runs in a separate process, because a process can join only one cluster. Placement, ranks, resources and
processes are Ray's own. Only the computation is on CPUs, and the communication by gloo.
"""

import json
import os
import subprocess
import sys
import time
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

from pipeline.artifacts import Checkpoint, EncodedDataset, EvaluationSet, Hypotheses, TrainingRun
from pipeline.context import Context
from pipeline.evaluation.decoding import decode
from pipeline.hardware import LOGICAL_GPUS
from pipeline.settings import DecodingSettings, TrainingSettings
from pipeline.store.build import Build
from pipeline.training.on_ray import train
from tests.support.contexts import new_context
from tests.support.ray_workers import tasks_below
from tests.support.waiting import until
from workflows.engine.cluster import ON_HEAD, set_local_variables
from workflows.engine.joining import loopback_only

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
class RecordingBuild(Build):
    """Records where each worker is, before anything else, and the controllers on the head."""

    diary: Path
    head_raylet: int
    """Process id."""

    def input(self, folder: Path) -> Path:
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
        (self.diary / "head.json").write_text(json.dumps([*tasks_below(self.head_raylet).values()]))
        return folder

    @property
    def placed(self) -> list[Placed]:
        return [Placed(*json.loads(path.read_text())) for path in sorted(self.diary.glob("rank-*.json"))]


def n_gpus() -> float:
    return float(ray.cluster_resources()["GPU"])


def start(gpus: int) -> None:
    set_local_variables()
    os.environ |= {LOGICAL_GPUS: "1", "RAY_TRAIN_V2_ENABLED": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    with loopback_only():
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        started.append(cluster)
        cluster.add_node(num_cpus=4, num_gpus=gpus)
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
    build = RecordingBuild(folder, diary, raylet(started[0].head_node))
    stage = ray.remote(num_cpus=0, resources=ON_HEAD)(train)
    return stage.remote(Context(folder, emit or (lambda event: None), build=build), dataset, settings), build


def trained(dataset: EncodedDataset, settings: TrainingSettings, folder: Path) -> tuple[list[Placed], list[str], str]:
    reference, build = training(dataset, settings, folder)
    ray.get(reference)
    all_free()
    (node,) = [node["NodeID"] for node in ray.nodes() if node["Resources"].get("GPU")]
    return build.placed, json.loads((build.diary / "head.json").read_text()), node


def all_free() -> None:
    until(lambda: ray.available_resources().get("GPU") == n_gpus(), PATIENCE_S, lambda: "the GPUs are not free again")


def _hold(path: Path, event: dict[str, Any]) -> None:
    """Holds a run at update 3 until a file exists. Use it as `emit`."""
    if event.get("step", 0) >= 3:
        path.with_name("held").touch()
        until(path.exists, PATIENCE_S, lambda: f"{path} never came")


def decoded_beside(
    dataset: EncodedDataset,
    settings: TrainingSettings,
    checkpoint: Checkpoint,
    text: EvaluationSet,
    decoding: DecodingSettings,
    folder: Path,
) -> tuple[TrainingRun, Hypotheses, list[Placed]]:
    reference, build = training(dataset, settings, folder / "run", partial(_hold, folder / "decoded"))
    until((folder / "held").exists, PATIENCE_S, lambda: "the run did not begin")
    hypotheses = decode(new_context(folder / "hypotheses"), checkpoint, text, decoding)
    assert ray.available_resources().get("GPU", 0) <= 1, "the run does not hold its GPU"
    (folder / "decoded").touch()
    run: TrainingRun = ray.get(reference, timeout=PATIENCE_S)
    all_free()
    return run, hypotheses, build.placed


class Seen(NamedTuple):
    """The active tasks of both nodes' processes, and the maximum number of reserved GPUs and of runs at once."""

    on_head: set[str]
    on_node: set[str]
    gpus: float
    runs: int
    trained_in: set[int]
    """Process ids of all runs."""


def watched(command: list[str]) -> Seen:
    (node,) = started[0].worker_nodes
    on_head, on_node, gpus, runs, trained_in = set[str](), set[str](), 0.0, 0, set[int]()
    with subprocess.Popen([sys.executable, *command, "--address", address()], stdout=subprocess.DEVNULL) as driver:
        while driver.poll() is None:
            with suppress(psutil.Error):
                on_head |= {*tasks_below(raylet(started[0].head_node)).values()}
                tasks = tasks_below(raylet(node))
                on_node |= {*tasks.values()}
                training = {pid for pid, title in tasks.items() if "single_worker" in title}
                runs, trained_in = max(runs, len(training)), trained_in | training
            gpus = max(gpus, n_gpus() - ray.available_resources().get("GPU", 0))
            time.sleep(0.1)
    assert driver.returncode == 0
    return Seen(on_head, on_node, gpus, runs, trained_in)
