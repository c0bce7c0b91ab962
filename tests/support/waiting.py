import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def until(
    found: Callable[[], T],
    within_s: float,
    otherwise: Callable[[], object] = str,
    process: "subprocess.Popen[Any] | None" = None,
) -> T:
    """Returns the first true value of `found`. Fails with `otherwise` if time or the process ends before."""
    end_s = time.monotonic() + within_s
    while not (value := found()):
        assert time.monotonic() < end_s, otherwise()
        assert process is None or process.poll() is None, otherwise()
        time.sleep(0.1)
    return value
