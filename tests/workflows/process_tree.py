"""Which processes there are, from /proc: Linux alone."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """Of a process, its main thread's."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for_end(pids: Iterable[int], timeout_s: float) -> bool:
    """Whether all have ended in time; multiprocessing's tracker does a moment after its parent."""
    end_s = time.monotonic() + timeout_s
    while alive := any(map(is_alive, pids)):
        if time.monotonic() > end_s:
            break
        time.sleep(0.05)
    return not alive


def is_alive(pid: int | None) -> bool:
    """Whether it runs, a zombie being dead."""
    with suppress(ProcessLookupError):
        os.kill(pid or 0, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False
