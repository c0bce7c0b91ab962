"""pipeline.training.on_ray: the stage runs on a Ray cluster, end to end."""

import os
import re
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from pipeline.artifacts import EncodedDataset, TrainingRun
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.store.build import Build
from pipeline.training import on_ray
from pipeline.training.layout import NODE_GROUP, layout_on
from pipeline.training.loop import Training
from pipeline.training.on_ray import train
from pipeline.training.workers import Workers
from tests.support.ray_workers import tasks_below
from tests.support.tiny_training import TINY, kill_once, metrics, weights, with_fields

pytestmark = pytest.mark.usefixtures("ray_cluster")

FREE = TrainingSettings()
"""The paper's settings. The cluster determines the number of workers and the device."""


def test_killed_worker_ends_in_the_same_bits(two_workers: Path, dataset: EncodedDataset, tmp_path: Path) -> None:
    """A stage in a Ray task whose rank 0 is killed by SIGKILL at update 5 ends like two undisturbed processes."""
    folder = tmp_path / "run"
    folder.mkdir()
    context = Context(folder, partial(kill_once, tmp_path / "killed", 5))
    trained: TrainingRun = ray.get(ray.remote(num_cpus=0)(train).remote(context, dataset, TINY))
    assert (tmp_path / "killed").exists()
    assert weights(folder) == weights(two_workers)
    assert metrics(folder) == metrics(two_workers)
    record = trained.read_json("run.json")
    assert trained.load().segments[-1].workers == 2
    assert record["checkpoints"] == [3, 6, 9]
    (segment,) = record["segments"]  # restarted workers continue the same segment
    assert (sum(device["count"] for device in segment["devices"]), segment["dtype"]) == (2, "float32")
    assert segment["train_s"] == record["train_s"]
    assert (folder / "joint.model").read_bytes() == (dataset.folder / "joint.model").read_bytes()
    names = {"run.json", "metrics.jsonl", "checkpoints", "recovery", "joint.model"}
    assert {path.name for path in folder.iterdir()} == names


def _kill_once_and_list(path: Path, earlier: dict[int, str], event: dict[str, Any]) -> None:
    """Kills this process at update 5, and lists its raylet's processes at the end, except earlier ones."""
    kill_once(path / "killed", 5, event)
    if event.get("done") == TINY.updates:
        (path / "titles").write_text(str(tasks_below(os.getppid()).items() - earlier.items()))


def test_killed_single_worker_ends_in_the_same_bits(dataset: EncodedDataset, tmp_path: Path) -> None:
    """A single worker, here killed by SIGKILL at update 5, is a Ray task, without processes of Ray Train."""
    alone, folder = with_fields(workers=1), tmp_path / "run"
    for made in (folder, tmp_path / "undisturbed"):
        made.mkdir()
    Training(Workers(), dataset, alone, tmp_path / "undisturbed").run()
    earlier = tasks_below()  # an earlier run's controller may not have ended yet
    train(Context(folder, partial(_kill_once_and_list, tmp_path, earlier)), dataset, alone)
    assert (tmp_path / "killed").exists()
    assert weights(folder) == weights(tmp_path / "undisturbed")
    assert metrics(folder) == metrics(tmp_path / "undisturbed")
    titles = (tmp_path / "titles").read_text()
    assert "single_worker" in titles
    assert "TrainController" not in titles


def _listening(driver: int, path: Path, event: dict[str, Any]) -> None:
    """Writes the listening addresses of the processes below `driver`, from a worker in mid-run."""
    with path.open("a") as file:
        for process in [psutil.Process(driver), *psutil.Process(driver).children(recursive=True)]:
            with suppress(psutil.Error):
                for found in process.net_connections("tcp"):
                    if found.status == psutil.CONN_LISTEN:
                        file.write(f"{found.laddr.ip} {process.name()}\n")


def test_nothing_listens_beyond_this_machine(dataset: EncodedDataset, tmp_path: Path) -> None:
    """While two workers train, Ray's processes, torch's store and gloo listen on loopback only."""
    found = tmp_path / "listening"
    train(Context(tmp_path, partial(_listening, os.getpid(), found)), dataset, with_fields(updates=2))
    listening = {tuple(line.split(" ", 1)) for line in found.read_text().splitlines()}
    assert {"gcs_server", "raylet", "ray::RayTrainWorker"} <= {name for _, name in listening}
    assert {ip for ip, _ in listening} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


def _begin_once_waited_for(path: Path, event: dict[str, Any]) -> None:
    """Lets `_hold` end when the second message has come that a run waits."""
    with (path / "waits").open("a") as file:
        if event.get("waiting"):
            file.write(event["waiting"] + "\n")
    if (path / "waits").read_text().count("\n") == 2:
        (path / "released").touch()


def _hold(path: Path) -> None:
    path.with_name("held").touch()
    while not path.exists():
        time.sleep(0.05)


def test_a_run_says_what_it_waits_for(dataset: EncodedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time that Ray Train gives up on starting its workers, here as another task has a CPU; this is no failure."""
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "2")
    monkeypatch.setattr(on_ray, "MAX_FAILURES", 0)
    holding = ray.remote(num_cpus=1)(_hold).remote(tmp_path / "released")
    while not (tmp_path / "held").exists():
        time.sleep(0.05)
    train(Context(tmp_path, partial(_begin_once_waited_for, tmp_path)), dataset, with_fields(updates=2))
    assert (tmp_path / "waits").read_text() == "room for training workers: 2 of 1 CPU each, 1 CPU free\n" * 2
    ray.get(holding)


def test_lost_nodes_are_waited_for(dataset: EncodedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the error says how many workers fit on those that are left."""
    monkeypatch.setattr(on_ray, "RETURN_S", 1)
    events: list[dict[str, Any]] = []
    context, lost = Context(tmp_path, events.append), with_fields(workers=3)
    with pytest.raises(UserError, match="room for 2"):
        on_ray._layout_again(on_ray._Work(dataset, lost, Build(context.folder), False, context.emit))
    assert all("for lost nodes" in event["waiting"] for event in events)
    assert len(events) > 1


def nodes(*resources: dict[str, float], group: str = "") -> list[dict[str, Any]]:
    """Lists synthetic nodes like `ray.nodes`. Nodes with a group come from an autoscaler."""
    return [{"Alive": True, "Resources": each, "Labels": ({NODE_GROUP: group} if group else {})} for each in resources]


HEAD = nodes({"CPU": 8.0}, group="head")
FOUR_GPUS = nodes({"CPU": 8.0, "GPU": 4.0})
DEAD = [{**FOUR_GPUS[0], "Alive": False}]
EIGHT_MACHINES = nodes(*[{"CPU": 8.0, "GPU": 1.0}] * 8)
FEW_CPUS = nodes({"CPU": 4.0, "GPU": 8.0})
TWO_MACHINES = nodes(*[{"CPU": 48.0, "GPU": 4.0}] * 2)


def test_made_up_nodes_look_like_ray_s() -> None:
    """Real nodes have their keys, and no group, because no launcher has started this cluster."""
    (node,) = ray.nodes()
    assert nodes({})[0].keys() <= node.keys()
    assert node["Resources"]["CPU"] == 2
    assert NODE_GROUP not in node["Labels"]


@pytest.mark.parametrize(
    ("cluster", "fields", "layout", "warning"),
    [
        (EIGHT_MACHINES, {}, (True, 8, 8, 1), ""),
        (TWO_MACHINES, {}, (True, 8, 8, 1), ""),
        (TWO_MACHINES, {"workers": 1}, (True, 1, 1, 8), ""),
        (TWO_MACHINES, {"workers": (2, 16)}, (True, 2, 16, 4), ""),
        (TWO_MACHINES, {"device": "cpu"}, (False, 64, 64, 1), ""),
        ([*DEAD, *FOUR_GPUS], {}, (True, 4, 4, 1), ""),
        # CPUs for half of its GPUs
        (FEW_CPUS, {}, (True, 4, 4, 1), "4 of the Ray cluster's 8 GPUs would idle: .* needs 1 CPU and 1 GPU"),
        (FEW_CPUS, {"workers": 4}, (True, 4, 4, 1), ""),
        # what an autoscaler may add is waited for
        (HEAD, {"device": "gpu"}, (True, 1, 64, 1), "room for 0; waiting for nodes that an autoscaler may add"),
        ([*HEAD, *FOUR_GPUS], {"device": "gpu", "workers": 8}, (True, 8, 8, 1), "room for 4; waiting"),
        ([*HEAD, *TWO_MACHINES], {"device": "gpu"}, (True, 1, 64, 8), ""),
        (HEAD, {}, (False, 1, 64, 8), "no node of the Ray cluster has a GPU"),
        # by default, a share of a GPU is for one worker
        (FOUR_GPUS, {"gpu_share": 0.25}, (True, 1, 1, 8), ""),
        (EIGHT_MACHINES, {"gpu_share": 0.1, "workers": 1}, (True, 1, 1, 64), ""),
        (FOUR_GPUS, {"gpu_share": 0.25, "workers": 2}, (True, 2, 2, 2), ""),
        (FOUR_GPUS, {"gpu_share": 0.25, "device": "cpu"}, (False, 8, 8, 1), ""),
        # never more workers than parts of an update
        (nodes({"CPU": 2.0}), {}, (False, 2, 2, 1), ""),
        (nodes({"CPU": 4.0}), {"budget_tokens": 600}, (False, 2, 2, 2), ""),
        (nodes({"CPU": 4.0}), {"threads": 0}, (False, 2, 2, 1), ""),
        (nodes({"CPU": 4.0}), {"workers": 3, "budget_tokens": 600}, (False, 2, 2, 2), "using 2 workers"),
        (nodes({"CPU": 2.0}), {"workers": (1, 16), "exact_reduction": True}, (False, 1, 8, 2), "16, .* only 8;"),
    ],
)
def test_workers_fill_the_cluster(
    cluster: list[dict[str, Any]], fields: dict[str, Any], layout: tuple[Any, ...], warning: str
) -> None:
    """Device, fewest and most workers, and runs at once: as many as fit, or as set."""
    found = layout_on(cluster, FREE.model_copy(update=fields))
    assert found[:4] == layout
    assert re.search(warning, " ".join(found.warnings))
    assert bool(warning) == bool(found.warnings)


@pytest.mark.parametrize(
    ("cluster", "fields", "message"),
    [
        ([*DEAD, *FOUR_GPUS], {"workers": 8}, "room for 4;"),
        (FEW_CPUS, {"workers": 8}, "room for 4;"),
        (nodes({"CPU": 2.0}), {"workers": 3}, "room for 2;"),
        (nodes({"CPU": 2.0}), {"threads": 3}, "room for 0;"),
        (nodes({"CPU": 2.0}), {"device": "gpu"}, "device is gpu"),
    ],
)
def test_workers_that_never_fit_fail(cluster: list[dict[str, Any]], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        layout_on(cluster, FREE.model_copy(update=fields))
