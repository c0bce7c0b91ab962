"""Training on a Ray cluster (paper §5): each worker runs `pipeline.training.loop`.

    run = train(Context(folder), dataset, TrainingSettings(workers=2))

Every run uses Ray Train, which starts a group of workers and replaces preempted ones; they connect themselves
(`pipeline.training.workers`). A single worker uses Ray Train's local mode in a Ray task: one process instead of three,
which may have torch imported from an earlier run. On a cluster that may grow, it is a group of one, which Ray Train
replaces as often as its machine is preempted.

All recovery uses the newest intact checkpoint in the stage's folder; without a shared disk, by `context.build`.

An exception in one worker ends the group: others may be blocked in a collective, from which neither gloo nor NCCL wakes
them, so Ray Train's controller kills them. If the worker's own code raised it, the run ends with that error. Otherwise
a process was lost, and a new group is started.
"""

import logging
import os
import pickle
import shutil
import signal
import time
import traceback
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ray

from pipeline.artifacts import VOCABULARY_FILE, EncodedDataset, TrainingRun
from pipeline.context import Context, Listener
from pipeline.environment import Laps, usable_cpus, worker_environment
from pipeline.errors import LostProcessError, UserError
from pipeline.memory import release_gpu_memory
from pipeline.ray_private import LOST, handler_kept, lean_torch_trainer, lost_process, remove_abandoned_placement_groups
from pipeline.settings import TrainingSettings
from pipeline.store.build import Build
from pipeline.training.layout import ClusterLayout, layout_on, listed, may_grow, process_options, resources
from pipeline.warning_events import emitting_warnings

if TYPE_CHECKING:
    from ray.train.torch import TorchConfig

    from pipeline.records import TrainingRecord

log = logging.getLogger(__name__)

MAX_FAILURES = 3
"""Losses of processes after which a run goes on; preempted machines do not count."""
RETURN_S = 600.0
"""Time for which lost nodes may return, if the remaining ones are too few for a run."""
REGROW_S = 30.0
"""Time between checks for room for more workers, if their number is elastic."""
MOST_COMPILING = 4
"""Compiler processes of a worker, which has some 15 kernels; Inductor would start one for each CPU, at each worker."""


def train(context: Context, dataset: EncodedDataset, settings: TrainingSettings) -> TrainingRun:
    """Trains a model, resuming an interrupted call's work in `context.folder`.

    Requires a Ray connection. Each worker waits for its CPUs and, on GPUs, its GPU. Raises UserError if the cluster's
    nodes can never hold the workers, LostProcessError after more than MAX_FAILURES failures, and a worker's own error,
    with its traceback as a note.
    """
    training_run, dataset = TrainingRun(context.folder.absolute()), EncodedDataset(dataset.folder.absolute())
    build = context.build or Build(training_run.folder)
    layout = layout_on(ray.nodes(), settings)
    for warning in layout.warnings:
        log.warning("%s", warning)
    work = _Work(dataset, settings, build, layout.on_gpus, context.emit)
    record = _with_retries(work, layout, training_run.folder / "ray")
    build.collect()
    training_run.write(record)
    shutil.copyfile(dataset.folder / VOCABULARY_FILE, training_run.folder / VOCABULARY_FILE)
    return training_run


class NoRoomError(LostProcessError):
    """A group of workers did not start in time, for lack of room."""


class _Work(NamedTuple):
    """The arguments of each worker."""

    dataset: EncodedDataset
    settings: TrainingSettings
    build: Build
    on_gpus: bool
    emit: Listener


def _run_worker(work: _Work) -> "TrainingRecord":
    """Runs one of Ray Train's workers; its warnings become events. Its own errors get their traceback as a note."""
    try:
        return emitting_warnings(work.emit, _train_here, work)
    except Exception as error:
        if _is_of_others(error):
            raise
        raise _with_note(error, traceback.format_exc()) from None


def _with_note(error: Exception, note: str) -> Exception:
    """Adds a note, which reaches other processes as an exception's traceback does not, to it or to a substitute."""
    for sent in (error, RuntimeError(f"{type(error).__name__}: {error}")):
        sent.add_note(note)
        with suppress(Exception):
            if note in pickle.loads(pickle.dumps(sent)).__notes__:
                break
    return sent


def _is_of_others(error: Exception) -> bool:
    """Whether an error was raised by torch.distributed or Ray: another process or its machine may be lost."""
    from torch.distributed import DistError

    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = frame.f_globals.get("__name__", "")
    of_torch = isinstance(error, RuntimeError) and module.startswith("torch.distributed")
    return of_torch or module.startswith("ray.") or isinstance(error, DistError | ray.exceptions.RayError)


def _train_here(work: _Work) -> "TrainingRecord":
    """Trains in this worker, after connecting it to any others."""
    start = Laps()
    import ray.train.torch
    import torch
    from ray.train.collective import broadcast_from_rank_zero
    from torch.distributed import destroy_process_group

    from pipeline.hardware import reserved_gpu
    from pipeline.training.loop import Training
    from pipeline.training.workers import Workers, connect

    worker = ray.train.get_context()
    rank, size = worker.get_world_rank(), worker.get_world_size()
    if work.on_gpus and rank == 0:
        start.tell = lambda text: work.emit({"starting": text})
    start.end("imports", "connecting the workers" * (size > 1))
    compiling = max(1, min(MOST_COMPILING, usable_cpus() // worker.get_local_world_size()))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(compiling))
    device = reserved_gpu(str(ray.train.torch.get_device())) if work.on_gpus else "cpu"
    workers = Workers(rank, size, device)
    workers.use_device()
    if work.on_gpus and device != "cpu":  # a whole GPU, too: Ray may reuse the process of a run that had a share
        torch.cuda.set_per_process_memory_fraction(work.settings.gpus_per_worker, device)
    if size > 1:
        connect(ray.util.get_node_ip_address(), broadcast_from_rank_zero, rank, size, device)
    dataset = EncodedDataset(work.build.input(work.dataset.folder))
    start.end("connection", "opening the data, and compiling and checking attention's kernels")
    with work.build.opened() if rank == 0 else nullcontext(work.build.folder) as folder:
        record = Training(workers, dataset, work.settings, folder, work.emit, build=work.build, start=start).run()
    if size > 1:  # else NCCL warns at exit; after an error, others may be blocked, and all are killed
        destroy_process_group()
    return record


def _with_retries(work: _Work, layout: ClusterLayout, ray_folder: Path) -> "TrainingRecord":
    """Trains; after the loss of a process, be it a worker's or Ray Train's, continues from the newest checkpoint."""
    failures, had_no_room = 0, False
    remove_abandoned_placement_groups()  # of an earlier call, whose process was killed
    while True:
        _tell_waiting(work, layout, had_no_room)
        try:
            if layout.most == 1 and not may_grow(ray.nodes()):
                return _in_a_task(work)
            return _in_a_group(work, layout, ray_folder)
        except LostProcessError as error:
            remove_abandoned_placement_groups()
            had_no_room = isinstance(error, NoRoomError)
            failures += not had_no_room
            if failures > MAX_FAILURES:
                raise
            if not had_no_room:
                log.warning("going on from the newest checkpoint: %s", str(error).partition(";")[0])
        layout = _layout_again(work)


def _tell_waiting(work: _Work, layout: ClusterLayout, had_no_room: bool) -> None:
    """Emits what the workers wait for, if they lacked room before or now."""
    free, per_worker = ray.available_resources(), resources(work.settings, layout.on_gpus)
    if had_no_room or any(free.get(name, 0) < layout.fewest * number for name, number in per_worker.items()):
        needed, left = listed(per_worker), listed({name: free.get(name, 0) for name in per_worker})
        work.emit({"waiting": f"room for training workers: {layout.fewest} of {needed} each, {left} free"})


def _layout_again(work: _Work) -> ClusterLayout:
    """Lays out the rest of a run on the nodes that are left; waits for lost ones, if they do not suffice."""
    settings = work.settings.model_copy(update={"device": "gpu" if work.on_gpus else "cpu"})
    end_s = time.monotonic() + RETURN_S
    while True:
        try:
            return layout_on(ray.nodes(), settings)
        except UserError as error:
            if time.monotonic() > end_s:
                raise
            work.emit({"waiting": f"for lost nodes, up to {RETURN_S / 60:g} minutes: {error}"})
            time.sleep(RETURN_S / 10)


def _in_a_task(work: _Work) -> "TrainingRecord":
    """Trains with a single worker in Ray Train's local mode, in a task."""
    task = ray.remote(
        num_cpus=work.settings.cpus_per_worker,
        max_retries=0,
        **process_options(work.settings.gpus_per_worker * work.on_gpus, ray.nodes(), work.settings.exact_reduction),
        scheduling_strategy="DEFAULT",  # else it would run in the caller's placement group
    )(single_worker)
    try:
        record: TrainingRecord = ray.get(task.remote(work))
    except ray.exceptions.RayTaskError as error:
        if hasattr(error.cause, "__notes__"):
            raise error.cause from None
        raise
    except LOST as error:
        raise lost_process(error) from error
    return record


def single_worker(work: _Work) -> Any:
    """Trains as the only worker, in this process. The function's name becomes the process title."""
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    loop: Any = partial(_run_worker, work)
    try:
        return TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=0)).fit().return_value  # type: ignore[attr-defined]
    finally:
        release_gpu_memory()


def _in_a_group(work: _Work, layout: ClusterLayout, ray_folder: Path) -> "TrainingRecord":
    """Trains with as many workers as Ray Train finds room for. Uses `ray_folder` and then removes it."""
    # Imported here, since waiting for a single worker does not need them.
    from ray.train import ControllerError, FailureConfig, LoggingConfig, RunConfig, ScalingConfig, WorkerGroupError

    loop: Any = partial(_run_worker, work)
    trainer = lean_torch_trainer(
        loop,
        torch_config=_unconnected_torch_config(),
        scaling_config=ScalingConfig(  # type: ignore[call-arg]  # mypy reads the signatures of Train V1
            num_workers=(layout.fewest, layout.most) if layout.fewest < layout.most else layout.most,  # type: ignore[arg-type]
            use_gpu=layout.on_gpus,
            resources_per_worker=resources(work.settings, layout.on_gpus),
            elastic_resize_monitor_interval_s=REGROW_S,
        ),
        run_config=RunConfig(  # type: ignore[call-arg]
            name="training",
            storage_path=str(ray_folder),
            failure_config=FailureConfig(controller_failure_limit=0),  # type: ignore[call-arg]  # retried by the caller
            logging_config=LoggingConfig(log_level="ERROR"),
            worker_runtime_env={"env_vars": worker_environment()},
        ),
    )
    try:
        with handler_kept(signal.SIGINT):
            record: TrainingRecord = trainer.fit().return_value
    except WorkerGroupError as error:
        failures = [*error.worker_failures.values()]
        if all(hasattr(failure, "__notes__") for failure in failures):
            raise failures[0] from None
        dead = (failure for failure in failures if hasattr(failure, "health_check_failure"))
        raise lost_process(next(dead, failures[0])) from error
    except ControllerError as error:
        in_time = type(error.controller_failure).__name__ != "WorkerGroupStartupTimeoutError"
        raise (lost_process if in_time else NoRoomError)(error.controller_failure) from error
    except LOST as error:
        raise lost_process(error) from error
    finally:
        shutil.rmtree(ray_folder, ignore_errors=True)
    return record


def _unconnected_torch_config() -> "TorchConfig":
    """Returns a TorchConfig that leaves connecting the workers to `_run_worker`, and does not disconnect them.

    Ray Train's own has rank 0 listen on all interfaces of its node. Before killing workers, it also waits up to 30 s
    for each to leave the process group, where they may be blocked in a collective that a failed worker will not join.
    """
    from ray.train.backend import Backend
    from ray.train.torch import TorchConfig

    class Unconnected(Backend):
        share_cuda_visible_devices = True  # like Ray Train's own, so that NCCL can copy between GPUs

    class UnconnectedTorchConfig(TorchConfig):
        @property
        def backend_cls(self) -> type[Backend]:
            return Unconnected

    return UnconnectedTorchConfig()
