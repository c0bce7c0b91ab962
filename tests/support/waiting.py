import time
from collections.abc import Callable
from typing import Any


def until(found: Callable[[], Any], within_s: float, otherwise: Callable[[], Any] = str, process: Any = None) -> Any:
    """Returns the first true value of `found`. Fails with `otherwise` if time or the `Popen` process ends before."""
    end_s = time.monotonic() + within_s
    while not (value := found()):
        assert time.monotonic() < end_s, otherwise()
        assert process is None or process.poll() is None, otherwise()
        time.sleep(0.1)
    return value
