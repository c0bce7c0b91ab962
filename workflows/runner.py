"""Runs the steps of a DAG as Ray tasks, and tells watchers what happens.

Ray does the scheduling: every step is submitted at once, the references of its inputs are its dependencies.
"""

import fcntl
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle

from pipeline.artifacts import Artifact, Context, publish
from pipeline.errors import UserError
from workflows.dag import Step, substitute, to_run
from workflows.watching import Poster, Relay, Watcher

logger = logging.getLogger(__name__)

POLL_S = 0.25
CONNECT_S = 10
LIBRARIES = ("torch", "ray", "pyarrow", "sentencepiece", "sacrebleu", "sacremoses")


def map_on_ray(function: Callable[..., Any], calls: Iterable[Sequence[Any]]) -> Iterator[Any]:
    """`Context.map` on Ray: one task a call, results in order. An error is raised as it was in the task."""
    task = ray.remote(num_cpus=1)(function)
    references = [task.remote(*arguments) for arguments in calls]
    try:
        for reference in references:
            yield ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise _cause(error) from None


def _execute(step: Step, store: Path, board: ActorHandle, *inputs: Artifact) -> Artifact:
    artifact = step.artifact(store)
    if artifact is not None:
        return artifact
    post = Poster(board, step.fingerprint)
    post({"started": time.time()})
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
        return step.stage.function(Context(folder, post, map_on_ray), *arguments)

    artifact = publish(step.folder(store), make, manifest, resume=step.stage.resumes)
    # Waited for, so that what builds on it cannot be told of before it.
    ray.get(board.post.remote(step.fingerprint, {"finished": artifact}))
    return artifact


@contextmanager
def _only_driver(store: Path) -> Iterator[None]:
    """Two drivers on one store would write the same folders. The lock goes with the process, however that ends."""
    store.mkdir(parents=True, exist_ok=True)
    folder = os.open(store, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another command is working in {store}; wait for it, or choose another folder") from None
        yield
    finally:
        os.close(folder)


def set_local_variables() -> None:
    """Environment variables for a Ray cluster on this machine alone, where they are not set."""
    processes = str(max(8, os.cpu_count() or 1))
    for name, value in {
        # Nobody preempts this machine; the watcher would cost each training a process and two seconds of a core.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
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
            address=address,
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

    Raises what the first failing step raised, after stopping the others; KeyboardInterrupt stops them too. What was
    published stays, so the same call goes on from there.
    """
    missing = to_run(targets, store)
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


@contextmanager
def working(missing: Sequence[Step], store: Path, watchers: Sequence[Watcher], address: str | None) -> Iterator[Relay]:
    """All that making the steps `missing` needs: the store for oneself, a Ray cluster, watchers who know what is to be.

    SIGTERM raises KeyboardInterrupt in the body. Raises UserError where another command works in the store.
    """
    made = {step.fingerprint for step in missing}
    needed = {step.fingerprint: step for making in missing for step in making.inputs}
    cached = [step for fingerprint, step in needed.items() if fingerprint not in made]
    with _only_driver(store), _terminate_like_interrupt():
        for watcher in watchers:
            watcher.begin(missing, cached)
        failure: BaseException | None = None
        try:
            with cluster(address):
                yield Relay(missing, watchers)
        except BaseException as error:
            failure = error
            raise
        finally:
            for watcher in watchers:
                watcher.end(failure)


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
        if isinstance(error, ray.exceptions.RayTaskError):
            raise _cause(error) from None
        raise


def _cause(error: BaseException) -> BaseException:
    """What a user can mend (bad input, a full disk), however deep Ray has wrapped it; else the error itself."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError | OSError) and not isinstance(cause, ray.exceptions.RayTaskError):
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    return error
