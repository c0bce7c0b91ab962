"""Training on a Ray cluster (paper §5): a group of workers by Ray Train V2, each in `pipeline.training.loop`.

    run = train(Context(folder), dataset, TrainingSettings(workers=2))

The checkpoints in the stage's folder are the one thing to go on from: a worker that dies, a driver that is killed, and
the same command started again all continue from the newest good one there. On several nodes the folder lies on storage
that all of them share.
"""

import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ray
import ray.train
import ray.train.torch
from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2._internal.callbacks.datasets import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback

from pipeline.errors import UserError
from pipeline.hardware import KEEP_MEMORY
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import EncodedDataset, TrainingRun
from pipeline.training.loop import Listener, run
from pipeline.training.worker_group import WorkerGroup

log = logging.getLogger(__name__)

MAX_FAILURES = 3
"""Deaths of workers after which the training gives up. Machines taken away do not count, a UserError is no death."""
NOT_NEEDED = (DatasetsCallback, PlacementGroupCleanerCallback)
"""Of Ray Train's callbacks."""
REGROW_S = 30.0
"""Between looks whether the cluster has room for more workers, where their number may change."""


def train(context: Context, dataset: EncodedDataset, settings: TrainingSettings) -> TrainingRun:
    """Trains a model, continuing what an interrupted call left in `context.folder`.

    Needs a Ray connection. Each worker reserves `settings.threads` CPUs and, on GPUs, one GPU, and waits until they are
    free. Raises UserError where the cluster's nodes can never hold the workers, and as `training_loop.run` does.
    """
    training_run, dataset = TrainingRun(context.folder.resolve()), EncodedDataset(dataset.folder.resolve())
    on_gpus, fewest, most, _ = layout_of(settings)
    ray_folder = training_run.folder / "ray"
    loop: Any = partial(_work, dataset, settings, training_run.folder, on_gpus, context.emit)
    trainer = _Trainer(
        loop,
        torch_config=TorchConfig(backend="nccl" if on_gpus else "gloo"),
        scaling_config=ScalingConfig(  # type: ignore[call-arg]  # mypy reads the signatures of Train V1
            num_workers=(fewest, most) if fewest < most else most,  # type: ignore[arg-type]
            use_gpu=on_gpus,
            resources_per_worker=_resources(settings, on_gpus),
            elastic_resize_monitor_interval_s=REGROW_S,
        ),
        run_config=RunConfig(  # type: ignore[call-arg]
            name="training",
            storage_path=str(ray_folder),
            failure_config=FailureConfig(max_failures=MAX_FAILURES),
            logging_config=LoggingConfig(log_level="ERROR"),
            worker_runtime_env={"env_vars": KEEP_MEMORY},
        ),
    )
    with _own_interrupts():
        result: Any = _fit(trainer)
    outcome = result.return_value
    if outcome["user_error"]:
        raise UserError(outcome["user_error"])
    training_run.write(outcome["run"])
    shutil.copyfile(dataset.folder / "joint.model", training_run.folder / "joint.model")
    shutil.rmtree(ray_folder, ignore_errors=True)
    return training_run


def _fit(trainer: TorchTrainer) -> Any:
    """The trainer's result. Ray Train sees to its workers; where its own controller dies, it is begun anew here."""
    for _ in range(MAX_FAILURES):
        try:
            return trainer.fit()
        except ray.exceptions.ActorDiedError as error:
            log.warning("Ray Train's controller died and is started again (%s)", str(error).split("\n")[0])
    return trainer.fit()


class _Trainer(TorchTrainer):
    """Ray's, without two processes, each 3 s of a core to start.

    One hands out Ray datasets: there are none. One frees what a killed controller had reserved: the workflow's runner
    does (Ray's asks the dashboard, which a cluster on one machine does not have).
    """

    def _create_default_callbacks(self) -> list[Any]:
        made = super()._create_default_callbacks()  # type: ignore[misc]  # mypy reads Train V1
        return [callback for callback in made if not isinstance(callback, NOT_NEEDED)]


class ClusterLayout(NamedTuple):
    """How a training lies on the cluster."""

    on_gpus: bool
    fewest: int
    most: int
    """Workers; as many as `fewest` unless the number may change while it trains."""
    at_once: int
    """So many such trainings have room beside each other."""


def layout_of(settings: TrainingSettings) -> ClusterLayout:
    """Whether the workers have GPUs, and their number: that of the settings, or as many as the idle nodes would hold.

    More than one a micro-batch are never taken. Raises UserError where the nodes cannot hold the fewest that there may
    be: Ray would wait for them for ever.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    has_gpus = any(node.get("GPU", 0) >= 1 for node in nodes)
    if settings.device == "gpu" and not has_gpus:
        raise UserError("device is gpu, but the Ray cluster has none; set device to cpu or join a node that has one")
    on_gpus = has_gpus and settings.device != "cpu"
    per_worker = _resources(settings, on_gpus)
    room = sum(min(int(node.get(name, 0) // wanted) for name, wanted in per_worker.items()) for node in nodes)
    asked = settings.workers or max(room, 1)
    bounds = asked if isinstance(asked, tuple) else (asked, asked)
    fewest, most = (min(bound, settings.micro_batches) for bound in bounds)
    if settings.workers and most < bounds[1]:
        log.warning("workers is %d, but an update has %d micro-batches: so many train", bounds[1], most)
    if room < fewest:
        wanted = " and ".join(f"{number} {name}" for name, number in per_worker.items())
        raise UserError(
            f"{fewest} training workers with {wanted} each do not fit the Ray cluster: its nodes, {len(nodes)} in "
            f"number, have room for {room}; lower workers or threads, or join more nodes"
        )
    return ClusterLayout(on_gpus, fewest, most, room // fewest)


def _resources(settings: TrainingSettings, on_gpus: bool) -> dict[str, float]:
    return {"CPU": settings.threads, **({"GPU": 1} if on_gpus else {})}


def _work(
    dataset: EncodedDataset, settings: TrainingSettings, folder: Path, on_gpus: bool, emit: Listener
) -> dict[str, Any]:
    """One worker. A UserError is returned, not raised: to Ray it would be a failure to try again."""
    worker = ray.train.get_context()
    device = str(ray.train.torch.get_device()) if on_gpus else "cpu"
    group = WorkerGroup(worker.get_world_rank(), worker.get_world_size(), device)
    try:
        return {"user_error": None, "run": run(group, dataset, settings, folder, emit, _is_leaving())}
    except UserError as error:
        return {"user_error": str(error), "run": None}


def _is_leaving() -> Callable[[], bool]:
    """Asks Ray Train whether a node of these workers is about to be taken away (all of them must ask)."""
    if os.environ.get("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER") == "0":
        return lambda: False
    return lambda: ray.train.get_preemption_info() is not None


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Puts the SIGINT handler back: Ray Train leaves its own, which would outlive the training."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not before:
            signal.signal(signal.SIGINT, before)
