"""The Ray cluster that steps run on: joined or started, its tasks mapped, its interrupts and leftovers seen to."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.util.placement_group import remove_placement_group

from pipeline.errors import UserError
from pipeline.memory import forget_peak_memory, peak_memory_bytes
from pipeline.ray_private import abandoned_placement_groups
from workflows.engine.joining import accepted_address

ABANDONED_S = 2.0
"""Between looks for what killed actors have reserved."""


def map_on_ray(
    function: Callable[..., Any], calls: Iterable[Sequence[Any]], peaks_bytes: list[int] | None = None
) -> Iterator[Any]:
    """`Context.map` on Ray: one task a call, results in order.

    The first error is raised as it was in the task, whatever is still at work before it, and stops the other tasks. The
    most memory that each task has had is added to `peaks_bytes`.
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
    """What the function returns, and the most memory that this process has had meanwhile, in bytes."""
    forget_peak_memory()
    return function(*arguments), peak_memory_bytes()


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

    Raises UserError where nothing answers at `address`, or what does demands a token that this machine does not have.
    """
    if ray.is_initialized():
        yield
        return
    # Ray hides GPUs from tasks that ask for none, and warns that this will change; both ways suit us.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    if address in (None, "auto"):
        address = os.environ.get("RAY_ADDRESS") or address or "local"  # else Ray would join one that runs here
    local = address == "local"
    if local:
        set_local_variables()
    try:
        with _interrupts_reach_children():
            ray.init(
                address=address if local else accepted_address(address),
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


@contextmanager
def _interrupts_reach_children() -> Iterator[None]:
    """Lets processes started in the body react to SIGINT, even where this one ignores it and goes on doing so.

    A script's shell makes what it starts with `&` ignore SIGINT. Ray's workers would inherit that, and `ray.cancel`,
    which interrupts a worker's main thread, would stop no task.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    # A new program inherits an ignored signal, but not a handler: it starts with the default action.
    signal.signal(signal.SIGINT, lambda _signal, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


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
    """Frees, while the body runs, what killed actors of this job had reserved.

    A killed controller of Ray Train leaves its workers' placement group behind, and the next training would wait for
    it forever.
    """
    over = threading.Event()

    def remove() -> None:
        while not over.wait(ABANDONED_S):
            for group in abandoned_placement_groups():
                remove_placement_group(group)

    thread = threading.Thread(target=remove, name="abandoned", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def cause_of(error: BaseException) -> BaseException:
    """What a user can mend (bad input, a full disk), however deep Ray has wrapped it; else the error itself."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError | OSError) and not isinstance(cause, ray.exceptions.RayTaskError):
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    return error
