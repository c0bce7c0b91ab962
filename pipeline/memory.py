"""The most memory that this process has had, as its operating system counts it."""

import resource
import sys
from contextlib import suppress
from pathlib import Path


def peak_memory_bytes() -> int:
    """Most resident memory since the process began, or since `forget_peak_memory` where that works."""
    with suppress(OSError):  # Linux; its ru_maxrss is inherited from the process that started this one
        lines = Path("/proc/self/status").read_text().split("\n")
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def forget_peak_memory() -> None:
    """Counts the peak from now on, where the operating system allows it: Linux does."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # man 5 proc: resets the peak
