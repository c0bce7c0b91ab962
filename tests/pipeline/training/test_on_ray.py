"""pipeline.training.on_ray: the stage runs on a Ray cluster, end to end."""

import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from model.config import OptimizerConfig
from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import EncodedDataset, TrainingRun
from pipeline.training.checkpoints import list_folders
from pipeline.training.loop import Training
from pipeline.training.on_ray import MAX_FAILURES, NODE_GROUP, layout_of, layout_on, train
from pipeline.training.workers import Workers
from tests.support.tiny_training import TINY, kill_once, metrics, weights, with_fields

pytestmark = pytest.mark.usefixtures("ray_cluster")

FREE = TrainingSettings()
"""The paper's settings. The cluster determines the number of workers and the device."""


def test_killed_worker_ends_in_the_same_bits(two_workers: Path, dataset: EncodedDataset, tmp_path: Path) -> None:
    """A stage in a Ray task whose rank 0 is killed by SIGKILL at update 5 ends like two undisturbed processes."""
    folder = tmp_path / "run"
    folder.mkdir()
    context = Context(folder, partial(kill_once, tmp_path / "killed", 5))
    stage = ray.remote(num_cpus=0)(train)
    trained: TrainingRun = ray.get(stage.remote(context, dataset, TINY))
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
    assert {path.name for path in folder.iterdir()} == {
        *("run.json", "metrics.jsonl", "checkpoints", "recovery", "joint.model")
    }


def _titles(raylet: psutil.Process) -> set[tuple[int, str]]:
    """Returns PID and title of the raylet's busy workers and actors."""
    found = set()
    for process in raylet.children(recursive=True):
        with suppress(psutil.Error):
            found.add((process.pid, next(iter(process.cmdline()), "")))
    return {(pid, title) for pid, title in found if title.startswith("ray::")}


def _kill_once_and_list(path: Path, earlier: set[tuple[int, str]], event: dict[str, Any]) -> None:
    """Kills this process at update 5, and lists its raylet's processes at the end, except earlier ones."""
    kill_once(path / "killed", 5, event)
    if event.get("done") == TINY.updates:
        listed = _titles(psutil.Process(os.getppid())) - earlier
        (path / "titles").write_text("\n".join(title for _, title in listed))


def test_killed_single_worker_ends_in_the_same_bits(dataset: EncodedDataset, tmp_path: Path) -> None:
    """A single worker, here killed by SIGKILL at update 5, is a Ray task, without processes of Ray Train."""
    alone, folder = with_fields(workers=1), tmp_path / "run"
    for made in (folder, tmp_path / "undisturbed"):
        made.mkdir()
    Training(Workers(), dataset, alone, tmp_path / "undisturbed").run()
    earlier = _titles(psutil.Process())  # an earlier run's controller may not have ended yet
    train(Context(folder, partial(_kill_once_and_list, tmp_path, earlier)), dataset, alone)
    assert (tmp_path / "killed").exists()
    assert weights(folder) == weights(tmp_path / "undisturbed")
    assert metrics(folder) == metrics(tmp_path / "undisturbed")
    titles = (tmp_path / "titles").read_text()
    assert "ray::single_worker" in titles
    assert "TrainController" not in titles


def test_single_worker_that_dies_again_and_again_is_given_up(dataset: EncodedDataset, tmp_path: Path) -> None:
    """It is started four times, and the last crash is raised."""
    with pytest.raises(ray.exceptions.WorkerCrashedError):
        train(Context(tmp_path, partial(_die, tmp_path / "deaths")), dataset, with_fields(workers=1))
    assert (tmp_path / "deaths").read_text() == "died\n" * (1 + MAX_FAILURES)


def _die(path: Path, _event: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write("died\n")
    os.kill(os.getpid(), signal.SIGKILL)


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


def test_user_error_of_a_single_worker_reaches_the_caller(dataset: EncodedDataset, tmp_path: Path) -> None:
    """The error is one line, the run is not retried, and an earlier checkpoint stays."""
    settings = with_fields(optimizer=OptimizerConfig(learning_rate_scale=1e30), workers=1)
    with pytest.raises(UserError, match="update 2 ") as caught:
        train(Context(tmp_path), dataset, settings)
    assert "\n" not in str(caught.value)
    assert [path.name for path in list_folders(tmp_path / "recovery")] == ["00000001"]


def nodes(*resources: dict[str, float], group: str = "") -> list[dict[str, Any]]:
    """Lists synthetic nodes like `ray.nodes`. Nodes with a group come from an autoscaler."""
    labels = {NODE_GROUP: group} if group else {}
    return [{"Alive": True, "Resources": each, "Labels": labels} for each in resources]


EIGHT_MACHINES = nodes(*[{"CPU": 8.0, "GPU": 1.0}] * 8)
TWO_MACHINES = nodes(*[{"CPU": 48.0, "GPU": 4.0}] * 2)


def test_made_up_nodes_look_like_ray_s() -> None:
    """Real nodes have their keys, and no group, because no launcher has started this cluster."""
    (node,) = ray.nodes()
    assert nodes({})[0].keys() <= node.keys()
    assert node["Resources"]["CPU"] == 2
    assert NODE_GROUP not in node["Labels"]


@pytest.mark.parametrize("cluster", [EIGHT_MACHINES, TWO_MACHINES])
def test_eight_gpus_have_eight_workers(cluster: list[dict[str, Any]]) -> None:
    """On eight machines or two, the GPUs fit one run on all, or eight runs on one each. Dead machines have no room."""
    assert layout_on(cluster, FREE) == (True, 8, 8, 1, ())
    assert layout_on(cluster, FREE.model_copy(update={"workers": 1})) == (True, 1, 1, 8, ())
    assert layout_on(cluster, FREE.model_copy(update={"workers": (2, 16)}))[:4] == (True, 2, 8, 4)
    assert layout_on(cluster, FREE.model_copy(update={"device": "cpu"}))[:3] == (False, 8, 8)
    dead = [{**cluster[0], "Alive": False}, *cluster[1:]]
    room = 8 - int(cluster[0]["Resources"]["GPU"])
    assert layout_on(dead, FREE) == (True, room, room, 1, ())
    with pytest.raises(UserError, match=f"room for {room};"):
        layout_on(dead, FREE.model_copy(update={"workers": 8}))


def test_gpus_without_cpus_would_idle() -> None:
    """A warning has their number, unless the user has set the number of workers or there are as few micro-batches."""
    machine = nodes({"CPU": 4.0, "GPU": 8.0})
    *layout, (warning,) = layout_on(machine, FREE)
    assert layout == [True, 4, 4, 1]
    assert warning.startswith("4 of the Ray cluster's 8 GPUs would idle: a training worker needs 1 CPU and 1 GPU")
    assert layout_on(machine, FREE.model_copy(update={"micro_batches": 4})) == (True, 4, 4, 1, ())
    assert layout_on(machine, FREE.model_copy(update={"workers": 4})) == (True, 4, 4, 1, ())
    with pytest.raises(UserError, match="room for 4;"):
        layout_on(machine, FREE.model_copy(update={"workers": 8}))


def test_workers_wait_for_what_an_autoscaler_may_add() -> None:
    """From a head only, workers scale up to one per micro-batch or the requested number. If all fit, no warning."""
    head = nodes({"CPU": 8.0}, group="head")
    on_gpus = FREE.model_copy(update={"device": "gpu"})
    *layout, (warning,) = layout_on(head, on_gpus)
    assert layout == [True, 1, 8, 1]
    assert "room for 0; waiting for nodes that an autoscaler may add" in warning
    *layout, (warning,) = layout_on([*head, *TWO_MACHINES[:1]], on_gpus.model_copy(update={"workers": 8}))
    assert layout == [True, 8, 8, 1]
    assert "room for 4; waiting" in warning
    assert layout_on([*head, *TWO_MACHINES], on_gpus) == (True, 1, 8, 8, ())


def test_workers_that_never_fit_are_refused() -> None:
    """Three workers on two CPUs, or a GPU on a cluster without any, are one-line errors, not endless waits."""
    with pytest.raises(UserError, match="room for 2"):
        layout_of(with_fields(workers=3))
    with pytest.raises(UserError, match="room for 0"):
        layout_of(with_fields(workers=0, threads=3))
    with pytest.raises(UserError, match="device is gpu"):
        layout_of(with_fields(device="gpu"))


def test_workers_left_open_are_those_that_fit() -> None:
    """There is one worker per CPU, but never more than an update's micro-batches. Requesting more is a warning."""
    assert layout_of(with_fields(workers=0)) == (False, 2, 2, 1, ())
    assert layout_of(with_fields(workers=0, micro_batches=1)) == (False, 1, 1, 2, ())
    assert layout_of(with_fields(workers=2, micro_batches=1))[:4] == (False, 1, 1, 2)
    *layout, (warning,) = layout_of(with_fields(workers=(1, 16)))
    assert layout == [False, 1, 8, 2]
    assert warning == "workers is 16, but an update has only 8 micro-batches; using 8 workers"
