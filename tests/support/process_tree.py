"""Inspects processes through /proc, so only on Linux."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """Returns the child processes started by a process's main thread."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def interrupted(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str, list[int]]:
    """Interrupts a running benchmark with ctrl-C, sent to all its processes as a terminal does.

    Returns its exit status, its standard error and the processes it had started.
    """
    running = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        while len(children(running.pid)) < 2:  # the first contender, and multiprocessing's tracker
            assert running.poll() is None
            time.sleep(0.1)
        time.sleep(0.5)
        pids = children(running.pid)
        os.killpg(running.pid, signal.SIGINT)
        _, errors = running.communicate(timeout=20)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    return running.returncode, errors, pids


def wait_for_end(pids: Iterable[int], timeout_s: float) -> bool:
    """Returns whether all processes end in time; multiprocessing's tracker ends a moment after its parent."""
    end_s = time.monotonic() + timeout_s
    while alive := any(map(is_alive, pids)):
        if time.monotonic() > end_s:
            break
        time.sleep(0.05)
    return not alive


def is_alive(pid: int | None) -> bool:
    """Returns whether a process is alive; a zombie counts as dead."""
    with suppress(ProcessLookupError):
        os.kill(pid or 0, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False
