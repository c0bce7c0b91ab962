"""CPUs, environment variables and start-up times of processes that compute. Fast to import."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

KEEP_MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "2000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
"""glibc settings with which processes that compute keep freed memory for the next update.

By default glibc returns large blocks to the kernel and gets them back page by page: 22,000 page faults of about 5 µs in
an update of 4,096 tokens (3+3 layers of 256), 2% to 5% of its time in float32 on two cores."""
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""cuBLAS setting without which its products are not reproducible, read at a process's first product."""
SPIN_COUNT = 3_000
"""How many times an idle GNU OpenMP thread spins before it sleeps (default 300,000).

A spinning thread takes a CPU from the thread that it waits for. Beside a program that never idles, training with two
threads is 1.5 to 1.9 times as fast with 1,000 as by default, but a tenth slower on an idle machine; 3,000 is a
compromise (docs/results/2026-11-23_xeon-icelake-2-cores-float32.md)."""
CGROUPS = Path("/sys/fs/cgroup")


def usable_cpus() -> int:
    """Returns the number of CPUs available to this process: the fewest of its affinity and of its container's quota.

    All CPUs, if the system does not say (macOS).
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([allowed, *(max(1, int(quota)) for quota in _cpu_quotas())])


def busy_text() -> str:
    """Returns e.g. "load 85 on 2 CPUs" if more processes want to run on this machine than it has CPUs, else nothing."""
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1  # of the whole machine, also in a container
    return f"load {load:.0f} on {cpus} CPU{'s' * (cpus > 1)}" if load >= cpus + 1 else ""


def _cpu_quotas() -> Iterator[float]:
    """Yields the CPU quotas of this process's cgroup and of those above it, in CPUs: `docker run --cpus 1.5` sets 1.5.

    Both versions of cgroups (docs.kernel.org: cgroup-v2, sched-bwc). In a container, its own cgroup is the root.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for _, controllers, name in (line.split(":", 2) for line in lines):
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = CGROUPS / "cpu" if controllers else CGROUPS
        for group in (root / name.strip("/"), *(root / name.strip("/")).parents):
            with suppress(OSError, ValueError):
                if controllers:
                    quota, period = ((group / f"cpu.cfs_{of}_us").read_text() for of in ("quota", "period"))
                else:
                    quota, period = (group / "cpu.max").read_text().split()
                if quota != "max" and int(quota) > 0:
                    yield int(quota) / int(period)
            if group == root:
                break


def cache_folder() -> Path:
    """Returns this machine's folder for files that may be deleted at any time: `$AIAYN_CACHE` or `~/.cache/aiayn`."""
    chosen = os.environ.get("AIAYN_CACHE")
    return Path(chosen or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "aiayn")).absolute()


def worker_environment() -> dict[str, str]:
    """Returns environment variables for processes that compute; variables set by the user keep their values.

    glibc and GNU OpenMP read theirs once, at process start.
    """
    chosen = KEEP_MEMORY | {"GOMP_SPINCOUNT": str(SPIN_COUNT)}
    if "OMP_WAIT_POLICY" in os.environ:  # it implies a spin count, which an explicit one would override
        del chosen["GOMP_SPINCOUNT"]
    return {name: os.environ.get(name, value) for name, value in chosen.items()}


class Laps(dict[str, float]):
    """A stopwatch: seconds by part of a run's start, each from the end of the one before."""

    tell: Callable[[str], None] | None = None
    """Called with what follows when a part ends, if that may take long."""

    def __init__(self) -> None:
        super().__init__()
        self.began_s = self._ended_s = time.monotonic()

    def end(self, part: str, then: str = "") -> None:
        """Ends a lap of the named part."""
        now_s = time.monotonic()
        self[part] = self.get(part, 0.0) + now_s - self._ended_s
        self._ended_s = now_s
        if self.tell and then:
            self.tell(f"{then}, {now_s - self.began_s:.0f} s after its start")
