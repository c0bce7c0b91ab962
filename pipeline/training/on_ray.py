"""Training on a Ray cluster (paper §5): Ray Train V2 runs a group of workers, each in `pipeline.training.loop`.

    run = train(Context(folder), dataset, TrainingSettings(workers=2))

All recovery goes through the checkpoints in the stage's folder: after a worker dies, after the driver is killed, and
when the same command is started again, training continues from the newest intact one. Nodes that share no disk find it
through `context.scratch`.
"""

import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import ray
import ray.train
import ray.train.torch
from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from pipeline.errors import UserError
from pipeline.hardware import worker_environment
from pipeline.ray_private import bound_torch_config, lean_torch_trainer
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import EncodedDataset, TrainingRun
from pipeline.store.scratch import Scratch
from pipeline.training.loop import Listener, run
from pipeline.training.rendezvous import join
from pipeline.training.worker_group import BACKENDS, WorkerGroup

log = logging.getLogger(__name__)

MAX_FAILURES = 3
"""Worker failures tolerated before the run is aborted; preempted machines and UserErrors do not count."""
REGROW_S = 30.0
"""Time between checks for room for more workers, if their number may change."""


def train(context: Context, dataset: EncodedDataset, settings: TrainingSettings) -> TrainingRun:
    """Trains a model, continuing from what an interrupted call has left in `context.folder`.

    It needs a Ray connection. Each worker reserves `settings.threads` CPUs and, on GPUs, one GPU, and waits until they
    are free. Raises UserError if the cluster's nodes can never hold the workers, and whenever `loop.run` does.
    """
    training_run, dataset = TrainingRun(context.folder.resolve()), EncodedDataset(dataset.folder.resolve())
    on_gpus, fewest, most, _ = layout_of(settings)
    ray_folder = training_run.folder / "ray"
    loop: Any = partial(_work, dataset, settings, context.scratch, on_gpus, context.emit)
    trainer = lean_torch_trainer(
        loop,
        torch_config=bound_torch_config(BACKENDS["cuda" if on_gpus else "cpu"], join),
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
            worker_runtime_env={"env_vars": worker_environment()},
        ),
    )
    with _sigint_restored():
        result: Any = _fit(trainer)
    outcome = result.return_value
    if outcome["user_error"]:
        raise UserError(outcome["user_error"])
    context.scratch.collect()
    training_run.write(outcome["run"])
    shutil.copyfile(dataset.folder / "joint.model", training_run.folder / "joint.model")
    shutil.rmtree(ray_folder, ignore_errors=True)
    return training_run


def _fit(trainer: TorchTrainer) -> Any:
    """Returns the trainer's result. Ray Train restarts its workers; if its own controller dies, this restarts it."""
    for _ in range(MAX_FAILURES):
        try:
            return trainer.fit()
        except ray.exceptions.ActorDiedError as error:
            log.warning("Ray Train's controller died (%s); restarting it", str(error).split("\n")[0])
    return trainer.fit()


class ClusterLayout(NamedTuple):
    """How a training is laid out on the cluster."""

    on_gpus: bool
    fewest: int
    most: int
    """Greatest number of workers, equal to `fewest` unless the number may change during the training."""
    at_once: int
    """Number of such trainings that fit on the cluster at the same time."""


def layout_of(settings: TrainingSettings) -> ClusterLayout:
    """Decides whether the workers use GPUs and how many there are: as the settings say, or as many as fit if idle.

    There is never more than one per micro-batch. Raises UserError if the nodes cannot hold even the fewest workers,
    for which Ray would wait forever.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    has_gpus = any(node.get("GPU", 0) >= 1 for node in nodes)
    if settings.device == "gpu" and not has_gpus:
        raise UserError("device is gpu, but the Ray cluster has no GPU; set device to cpu or add a node with one")
    on_gpus = has_gpus and settings.device != "cpu"
    per_worker = _resources(settings, on_gpus)
    room = sum(min(int(node.get(name, 0) // wanted) for name, wanted in per_worker.items()) for node in nodes)
    asked = settings.workers or max(room, 1)
    bounds = asked if isinstance(asked, tuple) else (asked, asked)
    fewest, most = (min(bound, settings.micro_batches) for bound in bounds)
    if settings.workers and most < bounds[1]:
        log.warning("workers is %d, but an update has only %d micro-batches; using %d workers", bounds[1], most, most)
    if room < fewest:
        wanted = " and ".join(f"{number} {name}" for name, number in per_worker.items())
        raise UserError(
            f"{fewest} training workers with {wanted} each do not fit on the Ray cluster: its {len(nodes)} nodes have "
            f"room for {room}; lower workers or threads, or add nodes"
        )
    return ClusterLayout(on_gpus, fewest, most, room // fewest)


def _resources(settings: TrainingSettings, on_gpus: bool) -> dict[str, float]:
    return {"CPU": settings.threads, **({"GPU": 1} if on_gpus else {})}


def _work(
    dataset: EncodedDataset, settings: TrainingSettings, scratch: Scratch, on_gpus: bool, emit: Listener
) -> dict[str, Any]:
    """Runs one worker. It returns a UserError instead of raising it, because Ray would retry after a failure."""
    worker = ray.train.get_context()
    device = str(ray.train.torch.get_device()) if on_gpus else "cpu"
    group = WorkerGroup(worker.get_world_rank(), worker.get_world_size(), device)
    try:
        dataset = scratch.on_this_node(dataset)
        with scratch.opened() if group.rank == 0 else nullcontext(scratch.folder) as folder:
            done = run(group, dataset, settings, folder, emit, _preemption_check(), scratch)
        return {"user_error": None, "run": done}
    except UserError as error:
        return {"user_error": str(error), "run": None}


def _preemption_check() -> Callable[[], bool]:
    """Returns a check of whether a worker's node is about to be taken away, which all workers must make together."""
    if os.environ.get("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER") == "0":
        return lambda: False
    return lambda: ray.train.get_preemption_info() is not None


@contextmanager
def _sigint_restored() -> Iterator[None]:
    """Restores the SIGINT handler, which Ray Train replaces with one that would outlive the training."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not before:
            signal.signal(signal.SIGINT, before)
