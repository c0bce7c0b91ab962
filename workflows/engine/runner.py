"""Runs the steps of a DAG as Ray tasks, and tells watchers what happens.

Ray does the scheduling: every step is submitted at once, the references of its inputs are its dependencies.
"""

import logging
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray
from ray._private.state import state
from ray.actor import ActorHandle
from ray.core.generated.gcs_pb2 import PlacementGroupTableData  # type: ignore[attr-defined]  # generated
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline.errors import UserError
from pipeline.memory import forget_peak_memory, peak_memory_bytes
from pipeline.store.artifacts import Artifact, Context, publish
from pipeline.store.locks import Lock, wait_for
from workflows.engine.dag import Step, substitute, to_run
from workflows.engine.events import Poster, Relay, Watcher

logger = logging.getLogger(__name__)

LOST = (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError)
"""What Ray raises when a process is gone and it has tried in vain to do without."""
POLL_S = 0.25
CONNECT_S = 10
ABANDONED_S = 2.0
"""Between looks for what killed actors have reserved."""
LIBRARIES = ("torch", "ray", "pyarrow", "sentencepiece", "sacrebleu", "sacremoses")


def map_on_ray(
    function: Callable[..., Any], calls: Iterable[Sequence[Any]], peaks_bytes: list[int] | None = None
) -> Iterator[Any]:
    """`Context.map` on Ray: one task a call, results in order.

    The first error is raised as it was in the task, whatever is still at work before it, and stops the other tasks. The
    most memory that each task has had is added to `peaks_bytes`.
    """
    task = ray.remote(num_cpus=1)(_with_peak_memory).options(name=function.__name__)
    references = [task.remote(function, *arguments) for arguments in calls]
    unfinished, results = references, {}
    try:
        for reference in references:
            while reference not in results:
                (found,), unfinished = ray.wait(unfinished)
                results[found] = ray.get(found)
            result, peak_bytes = results.pop(reference)
            if peaks_bytes is not None:
                peaks_bytes.append(peak_bytes)
            yield result
    except BaseException as error:
        for reference in unfinished:
            ray.cancel(reference)
        if isinstance(error, ray.exceptions.RayTaskError):
            raise _cause(error) from None
        raise


def _with_peak_memory(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """What the function returns, and the most memory that this process has had meanwhile, in bytes."""
    forget_peak_memory()
    return function(*arguments), peak_memory_bytes()


def _execute(step: Step, store: Path, board: ActorHandle, *inputs: Artifact) -> Artifact:
    """Makes a step's artifact, unless another workflow on the store has, or is about to."""
    post = Poster(board, step.fingerprint)
    post({"started": time.time()})
    with Lock(step.folder(store), step.label) as lock:
        _take(lock, post)
        artifact = _published(step, store) or _make(step, store, post, lock, inputs)
    # Waited for, so that what builds on it cannot be told of before it.
    ray.get(board.post.remote(step.fingerprint, {"finished": artifact}))
    return artifact


def _take(lock: Lock, post: Poster) -> None:
    """Takes the lock, after those who have it now. A task that waits in `ray.get` gives its CPU to others."""
    # Here, where take() would see at once that the process of an owner on this machine is dead.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    wait = ray.remote(num_cpus=0)(wait_for).options(scheduling_strategy=here)
    while owner := lock.take():
        post({"waiting": str(owner)})
        ray.get(wait.remote(lock.path, owner))


def _published(step: Step, store: Path) -> Artifact | None:
    """What is published already; a damaged folder is removed."""
    if step.folder(store).is_dir() and step.damage(store):
        shutil.rmtree(step.folder(store))
    return step.artifact(store)


def _make(step: Step, store: Path, post: Poster, lock: Lock, inputs: Sequence[Artifact]) -> Artifact:
    step.check_given()
    for needed, artifact in zip(step.inputs, inputs, strict=True):
        if damage := artifact.damage():
            again = "remove it and run the same command again" if needed.out else "run the same command again"
            raise UserError(
                f"{artifact.folder}, which {step.label} reads, is damaged: {damage}; {again}: it is made anew"
            )
    made = {needed.fingerprint: artifact for needed, artifact in zip(step.inputs, inputs, strict=True)}
    arguments = substitute(step.arguments, lambda needed: made[needed.fingerprint])
    manifest = {
        "label": step.label,
        "stage": step.stage.name,
        "version": step.stage.version,
        "fingerprint": step.fingerprint,
        "inputs": {needed.label: needed.fingerprint for needed in step.inputs},
        "settings": [argument.model_dump(mode="json") for argument in step.arguments if hasattr(argument, "identity")],
        "libraries": {name: version(name) for name in LIBRARIES},
    }

    def make(folder: Path) -> Artifact:
        peaks_bytes: list[int] = []
        on_ray = partial(map_on_ray, peaks_bytes=peaks_bytes)
        artifact, own_bytes = _with_peak_memory(step.stage.function, Context(folder, post, on_ray), *arguments)
        manifest["peak_task_memory_bytes"] = max([own_bytes, *peaks_bytes])  # of the stage itself and its tasks
        return artifact

    return publish(step.folder(store), make, manifest, resume=step.stage.resumes, ours=lock.is_ours)


def set_local_variables() -> None:
    """Environment variables for a Ray cluster on this machine alone, where they are not set."""
    processes = str(max(8, os.cpu_count() or 1))
    for name, value in {
        # Nobody preempts this machine; the watcher would cost each training a process and two seconds of a core.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
        # By default a training ends up to 2 s later than its workers.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
        # By default Ray ends idle processes beyond one a CPU, and the next step imports torch again: 3 s of a core.
        "RAY_num_workers_soft_limit": processes,
        # Beyond three times this many processes, most of them asleep, Ray warns on the screen.
        "RAY_worker_maximum_startup_concurrency": processes,
    }.items():
        os.environ.setdefault(name, value)


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """A Ray cluster: the one this process has joined, the one at `address`, or one on this machine for the body's time.

    RAY_ADDRESS stands in for an `address` not given, as everywhere in Ray.

    Raises UserError where nothing answers at `address`.
    """
    if ray.is_initialized():
        yield
        return
    # Ray hides GPUs from tasks that ask for none, and warns that this will change; both ways suit us.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    address = address or os.environ.get("RAY_ADDRESS")
    local = address is None
    if address is not None:
        _check_answers(address)
    else:
        set_local_variables()
    try:
        ray.init(
            address=address or "local",  # else Ray would join one that runs on this machine
            include_dashboard=False if local else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
            num_cpus=len(os.sched_getaffinity(0)) if local and hasattr(os, "sched_getaffinity") else None,
        )
    except ConnectionError as error:
        raise UserError(
            f"no Ray cluster answers at --address {address} ({error}); start one with `ray start`"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Ray itself would try for minutes. Raises UserError where nothing listens at a `host:port`."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
        except OSError as error:
            raise UserError(
                f"no Ray cluster answers at --address {address} ({error}); check that it runs and the port is open"
            ) from None


@contextmanager
def _terminate_like_interrupt() -> Iterator[None]:
    def interrupt(_signal: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def run(
    targets: Sequence[Step], store: Path, watchers: Sequence[Watcher] = (), address: str | None = None
) -> list[Artifact]:
    """The artifacts of `targets`, made where they are not in `store`. Ray is started only if there is work to do.

    Other workflows may work on the store meanwhile: a step is made once. Raises what the first failing step raised,
    after stopping the others; KeyboardInterrupt stops them too. What was published stays, so the same call goes on
    from there.
    """
    missing = missing_steps(targets, store)
    if missing:
        with (
            working(missing, store, watchers, address) as relay,
            submitted(missing, store, relay.board) as running,
        ):
            while running:
                found, _ = ray.wait(list(running), num_returns=len(running), timeout=POLL_S)
                relay.fetch()
                for reference in [reference for reference in running if reference in found]:  # inputs first
                    relay.finished(running[reference], ray.get(reference))
                    del running[reference]
                relay.idle()
    else:
        for watcher in watchers:
            watcher.begin([], [*targets])
            watcher.end(None)
    return [step.stage.makes(step.folder(store)) for step in targets]


def missing_steps(targets: Sequence[Step], store: Path) -> list[Step]:
    """`to_run`, with a warning of each damaged folder."""
    found: dict[str, str | None] = {}
    missing = to_run(targets, store, found)
    for step in missing:
        if damage := found.get(step.fingerprint):
            logger.warning("%s is damaged (%s): %s is made again", step.folder(store), damage, step.label)
    return missing


@contextmanager
def working(missing: Sequence[Step], store: Path, watchers: Sequence[Watcher], address: str | None) -> Iterator[Relay]:
    """All that making the steps `missing` needs: the store, a Ray cluster, watchers who know what is to be.

    SIGTERM raises KeyboardInterrupt in the body.
    """
    store.mkdir(parents=True, exist_ok=True)
    made = {step.fingerprint for step in missing}
    needed = {step.fingerprint: step for making in missing for step in making.inputs}
    cached = [step for fingerprint, step in needed.items() if fingerprint not in made]
    with _terminate_like_interrupt():
        for watcher in watchers:
            watcher.begin(missing, cached)
        failure: BaseException | None = None
        try:
            with cluster(address), _abandoned_removed():
                yield Relay(missing, watchers)
        except BaseException as error:
            failure = error
            raise
        finally:
            for watcher in watchers:
                watcher.end(failure)


@contextmanager
def _abandoned_removed() -> Iterator[None]:
    """Frees, during the body, what actors of this job reserved that were killed.

    A killed controller of Ray Train leaves its workers' placement group behind, and whoever trains next would wait for
    ever. Ray Train's own cleaner asks the dashboard, which a cluster on one machine does not have, and costs each
    training a process.
    """
    over = threading.Event()

    def remove() -> None:
        job = ray.get_runtime_context().get_job_id()
        while not over.wait(ABANDONED_S):
            for told in state._connect_and_get_accessor().get_placement_group_table():
                group = PlacementGroupTableData.FromString(told)
                ours = group.creator_job_id.hex() == job and not group.is_detached
                # Those of the driver and of tasks, Tune's among them, have no such actor, and it is called dead too.
                by_actor = not ray.ActorID(group.creator_actor_id).is_nil()
                if ours and by_actor and group.creator_actor_dead and group.state != PlacementGroupTableData.REMOVED:
                    remove_placement_group(PlacementGroup(ray.PlacementGroupID(group.placement_group_id)))

    thread = threading.Thread(target=remove, name="abandoned", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def submitted(steps: Sequence[Step], store: Path, board: ActorHandle) -> Iterator[dict[Any, Step]]:
    """The Ray tasks that make `steps`, inputs first; what they need besides is in the store. Reference -> step.

    The body takes out what is done. Whatever it raises cancels the others; a step's error leaves as the step raised it.
    """
    # By default a caller that runs in a placement group, as Tune's trials do, would have its tasks in there, too.
    execute = ray.remote(scheduling_strategy="DEFAULT")(_execute)
    references: dict[str, Any] = {}
    for step in steps:
        inputs = [references.get(needed.fingerprint) or needed.artifact(store) for needed in step.inputs]
        references[step.fingerprint] = execute.options(num_cpus=step.stage.cpus, name=step.label).remote(
            step, store, board, *inputs
        )
    running = {references[step.fingerprint]: step for step in steps}
    try:
        yield running
    except BaseException as error:
        for reference in running:
            ray.cancel(reference, force=False, recursive=True)
        cause = _cause(error) if isinstance(error, ray.exceptions.RayTaskError) else error
        if isinstance(cause, LOST):
            lost, *_ = str(cause).strip().split("\n")
            raise UserError(
                f"Ray lost a process or a node ({lost}); what is finished is kept: run the same command again"
            ) from error
        if cause is not error:
            raise cause from None
        raise


def _cause(error: BaseException) -> BaseException:
    """What a user can mend (bad input, a full disk), however deep Ray has wrapped it; else the error itself."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError | OSError) and not isinstance(cause, ray.exceptions.RayTaskError):
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    return error
