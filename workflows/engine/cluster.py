"""Joins or starts the Ray cluster that steps run on, maps functions over it, and handles interrupts and leftovers."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray._private.authentication.authentication_token_setup import _enable_token_auth
from ray._private.authentication.authentication_utils import is_token_auth_enabled
from ray._private.services import canonicalize_bootstrap_address
from ray._private.state import state
from ray._raylet import AuthenticationTokenLoader, InnerGcsClient  # type: ignore[attr-defined]  # compiled
from ray.core.generated.gcs_pb2 import PlacementGroupTableData  # type: ignore[attr-defined]  # generated
from ray.util.placement_group import PlacementGroup, remove_placement_group

from pipeline.errors import UserError
from pipeline.memory import forget_peak_memory, peak_memory_bytes

CONNECT_S = 10
ANSWER_MS = 2000
"""How long a head node may take for its first answer, once Ray has waited up to 10 s for the connection."""


ABANDONED_S = 2.0
"""Seconds between checks for resources that killed actors had reserved."""


def map_on_ray(
    function: Callable[..., Any], calls: Iterable[Sequence[Any]], peaks_bytes: list[int] | None = None
) -> Iterator[Any]:
    """Implements `Context.map` on Ray: one task per call, results in order.

    The first error cancels the other tasks and is raised as it was in its task, even while earlier tasks are still
    running. The peak memory of each task is appended to `peaks_bytes`.
    """
    task = ray.remote(num_cpus=1)(with_peak_memory).options(name=function.__name__)
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
            raise cause_of(error) from None
        raise


def with_peak_memory(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """Calls the function; returns its result and the peak memory of this process during the call, in bytes."""
    forget_peak_memory()
    return function(*arguments), peak_memory_bytes()


def set_local_variables() -> None:
    """Sets environment variables for a Ray cluster on this machine alone, unless they are set already."""
    processes = str(max(8, os.cpu_count() or 1))
    for name, value in {
        # Nobody preempts this machine; the watcher would cost each training run a process and two seconds of a core.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
        # By default a training run ends up to 2 s later than its workers.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
        # By default Ray keeps one idle process per CPU; the next step's new processes then import torch: 3 s of a core.
        "RAY_num_workers_soft_limit": processes,
        # Ray prints a warning beyond three times this many processes, even though most of them are asleep.
        "RAY_worker_maximum_startup_concurrency": processes,
    }.items():
        os.environ.setdefault(name, value)


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Provides a Ray cluster for the body: the one already joined, the one at `address`, or a new one on this machine.

    Without an `address`, RAY_ADDRESS is used, as everywhere in Ray.

    Raises UserError if no cluster answers at `address`, or if it demands a token that this machine does not have.
    """
    if ray.is_initialized():
        yield
        return
    # Ray hides GPUs from tasks that request none, and warns that this will change; either behaviour is fine here.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    if address in (None, "auto"):
        address = os.environ.get("RAY_ADDRESS") or address or "local"  # otherwise Ray would join any local cluster
    local = address == "local"
    if local:
        set_local_variables()
    try:
        ray.init(
            address=address if local else _answering(address),
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


def _answering(address: str) -> str:
    """The HOST:PORT of the head node at `address`, which has accepted this process; `ray://` addresses as they are.

    Ray itself would try for minutes. Raises UserError where no head node answers or it does not accept this process.
    """
    found = address
    try:
        if "://" not in address:
            found = canonicalize_bootstrap_address(address) or address
        host, _, port = found.removeprefix("ray://").rpartition(":")
        if host and port.isdigit():
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
        if "://" not in address:
            _authenticate(found)
    except (OSError, ValueError, ray.exceptions.RayError) as error:
        raise UserError(
            f"no Ray cluster answers at --address {address} ({error}); check that it runs and the port is open"
        ) from None
    return found


def _authenticate(address: str) -> None:
    """Makes this process send its token if the head node demands one; by default Ray does so for `auto` alone.

    Raises UserError where there is no token or a wrong one, RayError where no head node answers.
    """
    if not is_token_auth_enabled():
        if _accepts(address):
            return
        if mode := os.environ.get("RAY_AUTH_MODE"):
            raise UserError(f"the Ray cluster at {address} demands a token; unset RAY_AUTH_MODE, which is {mode!r}")
    remedy = "copy what `ray get-auth-token` prints on the head node to ~/.ray/auth_token here, or to RAY_AUTH_TOKEN"
    try:
        # Without one, Ray would abort this process.
        if not AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True):
            raise UserError(f"this machine has no token for the Ray cluster at {address}; {remedy}")
    except ray.exceptions.AuthenticationError as error:
        raise UserError(f"no token for the Ray cluster at {address}: {error.message}") from None
    _enable_token_auth()
    if not _accepts(address):
        raise UserError(f"the Ray cluster at {address} does not accept this machine's token; {remedy}")


def _accepts(address: str) -> bool:
    """Whether the head node accepts this process as it is. Raises RayError where no head node answers."""
    screen, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)  # where Ray's C++ reports the failure, too
    try:
        InnerGcsClient.standalone(address, None, ANSWER_MS)
    except ray.exceptions.AuthenticationError:
        return False
    finally:
        os.dup2(screen, 2)
        os.close(screen)
        os.close(nowhere)
    return True


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    def interrupt(_signal: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def abandoned_removed() -> Iterator[None]:
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


def cause_of(error: BaseException) -> BaseException:
    """Returns the error a user can fix (bad input, a full disk), however deeply Ray wrapped it; else `error` itself."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError | OSError) and not isinstance(cause, ray.exceptions.RayTaskError):
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    return error
