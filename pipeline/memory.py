"""The peak memory of this process, as the operating system counts it; without torch, so that `--help` is quick."""

import resource
import sys
from contextlib import suppress
from pathlib import Path


def peak_memory_bytes() -> int:
    """Returns the peak resident memory since the process began, or since `forget_peak_memory` where that works."""
    with suppress(OSError):  # Linux, whose ru_maxrss is inherited from the parent process
        lines = Path("/proc/self/status").read_text().split("\n")
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def forget_peak_memory() -> None:
    """Restarts the measurement of peak memory, if the operating system allows it, as Linux does."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # man 5 proc: resets the peak
