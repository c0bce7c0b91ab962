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
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle

from pipeline.artifacts import Artifact, Context, publish
from pipeline.errors import UserError
from workflows.dag import Step, substitute, to_run

logger = logging.getLogger(__name__)

POLL_S = 0.25
CONNECT_S = 10
LIBRARIES = ("torch", "ray", "pyarrow", "sentencepiece", "sacrebleu", "sacremoses")


class Watcher:
    """Told of what happens to the steps; called in the driver, one call at a time."""

    def begin(self, steps: Sequence[Step], cached: Sequence[Step]) -> None:
        """Before anything runs: the steps to run and those found in the store."""

    def started(self, step: Step) -> None:
        """Work on the step has begun."""

    def event(self, step: Step, event: dict[str, Any]) -> None:
        """Progress or metrics (pipeline.artifacts.Context.emit)."""

    def finished(self, step: Step, artifact: Artifact) -> None:
        """The step's artifact is published."""

    def idle(self) -> None:
        """Called some times a second."""

    def end(self, error: BaseException | None) -> None:
        """All done, or stopped by `error`."""


class Board:
    """The Ray actor to which steps, wherever they run, post their events, and from which the driver fetches them."""

    def __init__(self) -> None:
        self._posted: list[tuple[str, dict[str, Any]]] = []

    def post(self, fingerprint: str, event: dict[str, Any]) -> None:
        """Adds an event of a step."""
        self._posted.append((fingerprint, event))

    def fetch(self) -> list[tuple[str, dict[str, Any]]]:
        """All events since the last call."""
        posted, self._posted = self._posted, []
        return posted


@dataclass(frozen=True)
class Poster:
    """`Context.emit` of one step: picklable, so that training workers and actors can post too."""

    board: ActorHandle
    fingerprint: str

    def __call__(self, event: dict[str, Any]) -> None:
        self.board.post.remote(self.fingerprint, event)


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

    return publish(step.folder(store), make, manifest, resume=step.stage.resumes)


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
        # Nobody preempts this machine; the watcher would cost each training a process and two seconds of a core.
        os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
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
        with _only_driver(store), _terminate_like_interrupt():
            _run_missing(targets, missing, store, watchers, address)
    else:
        for watcher in watchers:
            watcher.begin([], [*targets])
            watcher.end(None)
    return [step.stage.makes(step.folder(store)) for step in targets]


def _run_missing(
    targets: Sequence[Step], missing: list[Step], store: Path, watchers: Sequence[Watcher], address: str | None
) -> None:
    steps = {step.fingerprint: step for step in missing}
    cached: dict[str, Step] = {}
    for step in missing:
        cached.update({needed.fingerprint: needed for needed in step.inputs if needed.fingerprint not in steps})
    for watcher in watchers:
        watcher.begin(missing, list(cached.values()))
    failure: BaseException | None = None
    try:
        with cluster(address):
            _submit_and_follow(steps, store, watchers)
    except BaseException as error:
        failure = error
        raise
    finally:
        for watcher in watchers:
            watcher.end(failure)


def _submit_and_follow(steps: dict[str, Step], store: Path, watchers: Sequence[Watcher]) -> None:
    board: Any = ray.remote(num_cpus=0)(Board).remote()
    execute = ray.remote(_execute)
    references: dict[str, Any] = {}
    for step in steps.values():
        inputs = [references.get(needed.fingerprint) or needed.artifact(store) for needed in step.inputs]
        references[step.fingerprint] = execute.options(num_cpus=step.stage.cpus, name=step.label).remote(
            step, store, board, *inputs
        )
    pending = {reference: steps[fingerprint] for fingerprint, reference in references.items()}
    waiting = dict(steps)

    def tell_start(step: Step) -> None:
        """Once, and before the end: a step's post may arrive later than its result."""
        if waiting.pop(step.fingerprint, None):
            for watcher in watchers:
                watcher.started(step)

    try:
        while pending:
            found, _ = ray.wait(list(pending), num_returns=len(pending), timeout=POLL_S)
            for fingerprint, event in ray.get(board.fetch.remote()):
                if "started" in event:
                    tell_start(steps[fingerprint])
                else:
                    for watcher in watchers:
                        watcher.event(steps[fingerprint], event)
            for reference in [reference for reference in pending if reference in found]:  # inputs first
                artifact = ray.get(reference)
                tell_start(pending[reference])
                for watcher in watchers:
                    watcher.finished(pending[reference], artifact)
                del pending[reference]
            for watcher in watchers:
                watcher.idle()
    except ray.exceptions.RayTaskError as error:
        _cancel(pending)
        raise _cause(error) from None
    except BaseException:
        _cancel(pending)
        raise


def _cancel(references: Iterable[Any]) -> None:
    for reference in references:
        ray.cancel(reference, force=False, recursive=True)


def _cause(error: BaseException) -> BaseException:
    """What a user can mend (bad input, a full disk), however deep Ray has wrapped it; else the error itself."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError | OSError) and not isinstance(cause, ray.exceptions.RayTaskError):
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    return error
