"""Samples the resources of a running workflow on this machine: CPU time, memory per process, disk (Linux only)."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pipeline.store.artifact import Artifact
from workflows.engine.dag import Step
from workflows.engine.interface import Watcher

EVERY_S = 1.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Usage(Watcher):
    """Samples this process and its descendants, including a Ray cluster it started, and the size of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._next_s = folder, 0.0
        self._processes_cpu_s: dict[int, float] = {}
        self._peaks_bytes: dict[str, int] = {}
        self._disk_bytes = self._peak_disk_bytes = 0
        self.cpu_s: dict[str, float] = {}
        """CPU time of all processes during each step, in seconds, by its label; what overlaps counts for each."""

    def started(self, step: Step[Artifact]) -> None:
        self.cpu_s[step.label] = -self._sample()

    def finished(self, step: Step[Artifact], summary: str) -> None:
        self.cpu_s[step.label] += self._sample()

    def idle(self) -> None:
        if time.monotonic() > self._next_s:
            self._sample()
            self._next_s = time.monotonic() + EVERY_S

    def summary(self) -> dict[str, object]:
        """Returns the peak memory by process name, and the folder's disk use."""
        return {
            "peak_memory_gb": {name: peak / 1e9 for name, peak in sorted(self._peaks_bytes.items())},
            "disk_gb": self._disk_bytes / 1e9,
            "peak_disk_gb": self._peak_disk_bytes / 1e9,
        }

    def _sample(self) -> float:
        """Returns the total CPU time of all processes seen so far."""
        for process in _family(os.getpid()):
            with suppress(OSError):  # it has ended
                command, _, fields = Path(f"/proc/{process}/stat").read_text().partition("(")[2].rpartition(") ")
                self._processes_cpu_s[process] = sum(map(int, fields.split()[11:13])) * TICK_S
                title = Path(f"/proc/{process}/cmdline").read_text().partition("\0")[0]
                name = title if title.startswith("ray::") else command
                if peak := re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{process}/status").read_text()):
                    self._peaks_bytes[name] = max(self._peaks_bytes.get(name, 0), int(peak[1]) * 1024)
        self._disk_bytes = 0
        for folder, _, names in os.walk(self._folder):  # skips folders that vanish meanwhile
            for name in names:
                with suppress(OSError):
                    self._disk_bytes += os.lstat(os.path.join(folder, name)).st_blocks * 512
        self._peak_disk_bytes = max(self._peak_disk_bytes, self._disk_bytes)
        return sum(self._processes_cpu_s.values())


def _family(process: int) -> Iterator[int]:
    """Yields a process and its descendants."""
    yield process
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            for child in children.read_text().split():
                yield from _family(int(child))
