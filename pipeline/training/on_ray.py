"""Training on a Ray cluster (paper §5): each worker runs `pipeline.training.loop`.

    run = train(Context(folder), dataset, TrainingSettings(workers=2))

Every training is one of Ray Train's. It starts a group of workers, connects them, and replaces those that are lost or
about to be. A single worker on a machine that nobody takes away needs none of that: Ray Train's local mode runs it in a
Ray task, a process instead of three, which may have torch imported from the training before.

All recovery goes through the checkpoints in the stage's folder: after a worker dies, after the driver is killed, and
when the same command is started again, training continues from the newest intact one. Nodes that share no disk find it
through `context.scratch`.

A worker that raises ends all: the others may be waiting for it in a sum, from which neither gloo nor NCCL wakes them,
so Ray Train's controller kills the group. It starts a new one, unless the error was a UserError: that is the user's.
"""

import logging
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ray

from pipeline.environment import worker_environment
from pipeline.errors import UserError
from pipeline.settings import TrainingSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import VOCABULARY_FILE, EncodedDataset, TrainingRun
from pipeline.store.scratch import Scratch
from pipeline.warning_events import emitting_warnings

if TYPE_CHECKING:
    from ray.train import UserCallback
    from ray.train.torch import TorchConfig, TorchTrainer

    from pipeline.store.records import TrainingRecord
    from pipeline.training.loop import Listener

log = logging.getLogger(__name__)

MAX_FAILURES = 3
"""Worker failures tolerated before the run is aborted; preempted machines and UserErrors do not count."""
REGROW_S = 30.0
"""Time between checks for room for more workers, if their number may change."""
NODE_GROUP = "ray.io/node-group"
"""The label with the group of a node that Ray's cluster launcher or KubeRay has started; groups may grow."""


def train(context: Context, dataset: EncodedDataset, settings: TrainingSettings) -> TrainingRun:
    """Trains a model, continuing from what an interrupted call has left in `context.folder`.

    It needs a Ray connection. Each worker reserves `settings.threads` CPUs and, on GPUs, one GPU, and waits until they
    are free. Raises UserError if the cluster's nodes can never hold the workers, and whenever `loop.Training` does.
    """
    training_run, dataset = TrainingRun(context.folder.resolve()), EncodedDataset(dataset.folder.resolve())
    layout = layout_of(settings)
    for warning in layout.warnings:
        log.warning("%s", warning)
    work = _Work(dataset, settings, context.scratch, layout.on_gpus, context.emit)
    if layout.most == 1 and _nobody_preempts():
        figures = _in_a_task(work)
    else:
        figures = _in_a_group(work, layout, training_run.folder / "ray")
    context.scratch.collect()
    training_run.write(figures)
    vocabulary = context.scratch.on_this_node(dataset.folder / VOCABULARY_FILE)
    shutil.copyfile(vocabulary, training_run.folder / VOCABULARY_FILE)
    return training_run


class _Work(NamedTuple):
    """What each worker of a training does."""

    dataset: EncodedDataset
    settings: TrainingSettings
    scratch: Scratch
    on_gpus: bool
    emit: "Listener"


def _run_worker(work: _Work) -> "TrainingRecord":
    """Trains as one of Ray Train's workers; its warnings become events."""
    return emitting_warnings(work.emit, _train_here, work)


def _train_here(work: _Work) -> "TrainingRecord":
    """Trains in this worker, which it connects to the others if there are any."""
    import ray.train.torch
    from ray.train.collective import broadcast_from_rank_zero

    from pipeline.hardware import reserved_gpu
    from pipeline.training.loop import Training
    from pipeline.training.workers import Workers, connect

    worker = ray.train.get_context()
    rank, size = worker.get_world_rank(), worker.get_world_size()
    device = reserved_gpu(str(ray.train.torch.get_device())) if work.on_gpus else "cpu"
    workers = Workers(rank, size, device)
    workers.use_device()
    if size > 1:
        connect(ray.util.get_node_ip_address(), broadcast_from_rank_zero, rank, size, device)
    dataset = work.dataset.on_this_node(work.scratch)
    with work.scratch.opened() if rank == 0 else nullcontext(work.scratch.folder) as folder:
        training = Training(
            workers,
            dataset,
            work.settings,
            folder,
            work.emit,
            is_preempted=lambda: ray.train.get_preemption_info() is not None,
            scratch=work.scratch,
        )
        return training.run()


def _in_a_task(work: _Work) -> "TrainingRecord":
    """Trains with a single worker in Ray Train's local mode, in a task that Ray starts again if it is lost."""
    task = ray.remote(
        num_cpus=work.settings.threads,
        num_gpus=int(work.on_gpus),
        max_retries=MAX_FAILURES,
        runtime_env={"env_vars": worker_environment()},
        scheduling_strategy="DEFAULT",  # else the tasks of a caller in a placement group would run in that group, too
    )(single_worker)
    try:
        figures: TrainingRecord = ray.get(task.remote(work))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise error.cause from None
        raise
    return figures


def single_worker(work: _Work) -> Any:
    """Trains as the only worker, within this process. The name is the title of the process."""
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    loop: Any = partial(_run_worker, work)
    return TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=0)).fit().return_value  # type: ignore[attr-defined]


def _in_a_group(work: _Work, layout: "ClusterLayout", ray_folder: Path) -> "TrainingRecord":
    """Trains with as many workers as Ray Train finds room for; it writes to `ray_folder`, which is then removed."""
    # What a process that only waits for a single worker need not import.
    from ray.train import ControllerError, FailureConfig, LoggingConfig, RunConfig, ScalingConfig

    from pipeline.ray_private import lean_torch_trainer

    loop: Any = partial(_run_worker, work)
    trainer = lean_torch_trainer(
        loop,
        torch_config=_workers_join_by_themselves(),
        scaling_config=ScalingConfig(  # type: ignore[call-arg]  # mypy reads the signatures of Train V1
            num_workers=(layout.fewest, layout.most) if layout.fewest < layout.most else layout.most,  # type: ignore[arg-type]
            use_gpu=layout.on_gpus,
            resources_per_worker=_resources(work.settings, layout.on_gpus),
            elastic_resize_monitor_interval_s=REGROW_S,
        ),
        run_config=RunConfig(  # type: ignore[call-arg]
            name="training",
            storage_path=str(ray_folder),
            failure_config=FailureConfig(max_failures=MAX_FAILURES),
            callbacks=[_user_errors_end_training()],  # type: ignore[list-item]
            logging_config=LoggingConfig(log_level="ERROR"),
            worker_runtime_env={"env_vars": worker_environment()},
        ),
    )
    try:
        with _sigint_restored():
            figures: TrainingRecord = _fit(trainer).return_value
    except ControllerError as error:
        if isinstance(error.controller_failure, UserError):
            raise error.controller_failure from None
        raise
    finally:
        shutil.rmtree(ray_folder, ignore_errors=True)
    return figures


def _workers_join_by_themselves() -> "TorchConfig":
    """Makes a TorchConfig by which Ray Train neither connects the workers (`_run_worker` does) nor disconnects them.

    Ray Train has rank 0 listen on all interfaces of its node. Before it kills the workers it has each leave the process
    group, for which it waits up to 30 s: they may wait for a sum that lacks a failed worker's part.
    """
    from ray.train.backend import Backend
    from ray.train.torch import TorchConfig

    class Unconnected(Backend):
        share_cuda_visible_devices = True  # as in Ray Train's own, so that NCCL can copy from GPU to GPU

    class UnconnectedTorchConfig(TorchConfig):
        @property
        def backend_cls(self) -> type[Backend]:
            return Unconnected

    return UnconnectedTorchConfig()


def _user_errors_end_training() -> "UserCallback":
    """Makes a callback by which a worker's UserError ends the training without a retry.

    Ray Train starts workers again after an error of theirs, but not after one of a callback: then it kills the group,
    and `fit` raises a ControllerError whose `controller_failure` is that error.
    """
    from ray.train import UserCallback

    class UserErrorsEndTraining(UserCallback):
        def after_exception(self, run_context: object, worker_exceptions: dict[int, Exception]) -> None:
            for error in worker_exceptions.values():
                if isinstance(error, UserError):
                    raise error

    return UserErrorsEndTraining()


def _fit(trainer: "TorchTrainer") -> Any:
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
    warnings: tuple[str, ...] = ()


def layout_of(settings: TrainingSettings) -> ClusterLayout:
    """Lays a training out on the cluster that is joined, as `layout_on` says."""
    return layout_on(ray.nodes(), settings)


def layout_on(nodes: Sequence[Mapping[str, Any]], settings: TrainingSettings) -> ClusterLayout:
    """Decides whether the workers use GPUs and how many there are: as the settings say, or as many as fit if idle.

    `nodes` are as `ray.nodes` lists them. There is never more than one worker per micro-batch. Where an autoscaler may
    add nodes, a number left open is from one to that, and workers that fit nowhere yet are waited for, with a warning;
    for GPUs that are still to come, `device` must be gpu. Elsewhere Ray would wait forever, so this raises UserError.
    """
    nodes = [node for node in nodes if node["Alive"]]
    n_gpus = sum(int(node["Resources"].get("GPU", 0)) for node in nodes)
    growing = may_grow(nodes)
    if settings.device == "gpu" and not n_gpus and not growing:
        raise UserError("device is gpu, but the Ray cluster has no GPU; set device to cpu or add a node with one")
    on_gpus = settings.device == "gpu" or (settings.device == "auto" and n_gpus > 0)
    per_worker = _resources(settings, on_gpus)
    wanted = " and ".join(f"{number} {name}" for name, number in per_worker.items())
    room = sum(min(int(node["Resources"].get(name, 0) // per_worker[name]) for name in per_worker) for node in nodes)
    asked = settings.workers or ((1, settings.micro_batches) if growing else max(room, 1))
    bounds = asked if isinstance(asked, tuple) else (asked, asked)
    fewest, most = (min(bound, settings.micro_batches) for bound in bounds)
    warnings = []
    if growing and not n_gpus and settings.device == "auto":
        warnings.append(
            "no node of the Ray cluster has a GPU, so CPUs are trained on; set device to gpu to wait for one"
        )
    if settings.workers and most < bounds[1]:
        warnings.append(f"workers is {bounds[1]}, but an update has only {most} micro-batches; using {most} workers")
    if on_gpus and not settings.workers and room < min(n_gpus, settings.micro_batches):
        warnings.append(
            f"{n_gpus - room} of the Ray cluster's {n_gpus} GPUs would idle: a training worker needs {wanted}, and the "
            "nodes have too few CPUs; lower threads or give Ray more CPUs (ray start --num-cpus)"
        )
    if room < fewest:
        shortage = (
            f"{fewest} training workers with {wanted} each do not fit on the Ray cluster: its {len(nodes)} nodes have "
            f"room for {room}"
        )
        if not growing:
            raise UserError(f"{shortage}; lower workers or threads, or add nodes")
        warnings.append(f"{shortage}; waiting for nodes that an autoscaler may add")
    return ClusterLayout(on_gpus, fewest, most, max(room // fewest, 1), tuple(warnings))


def may_grow(nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Tells whether an autoscaler may add nodes to those that `ray.nodes` lists: a launcher or KubeRay started them.

    What it may add, and how many, no public part of Ray says.
    """
    return any(NODE_GROUP in node["Labels"] for node in nodes if node["Alive"])


def _resources(settings: TrainingSettings, on_gpus: bool) -> dict[str, float]:
    return {"CPU": settings.threads, **({"GPU": 1} if on_gpus else {})}


def _nobody_preempts() -> bool:
    """Tells whether this cluster is a machine of its own, which is not taken away (`workflows.engine.cluster`)."""
    return os.environ.get("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER") == "0"


@contextmanager
def _sigint_restored() -> Iterator[None]:
    """Restores the SIGINT handler, which Ray Train replaces with one that would outlive the training."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not before:
            signal.signal(signal.SIGINT, before)
