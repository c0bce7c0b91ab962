"""The CPUs and the environment variables of processes that compute. It imports nothing that is slow to import."""

import os
from pathlib import Path

KEEP_MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "2000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
"""Environment variables for processes that compute, with which glibc keeps freed memory for the next update.

By default it returns large blocks to the kernel and gets them back page by page: 22 000 page faults of about 5 µs in an
update of 4 096 tokens (3+3 layers of 256). Without these faults an update takes 2 to 5 % less time in float32 on two
cores, and the faster the products are, the more there is to gain."""
SPIN_COUNT = 3_000
"""How often a thread of GNU OpenMP looks for the end of the others' work before it sleeps; by default 300 000 times.

Such a thread keeps a processor from the other programs of the machine, and so from the thread that it waits for. Beside
a program that never rests, training with two threads is 1.5 to 1.9 times as fast with 1 000 as by default, but a tenth
slower alone; 3 000 lies between (docs/results/2026-11-23_xeon-icelake-2-cores-float32.md)."""


def usable_cpus() -> int:
    """Returns the number of CPUs that this process may use; where the system does not say (macOS), all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cache_folder() -> Path:
    """Returns the folder of this machine for what may be deleted at any time: `$AIAYN_CACHE`, or `~/.cache/aiayn`."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "aiayn")
    return Path(os.environ.get("AIAYN_CACHE") or default).absolute()


def worker_environment() -> dict[str, str]:
    """Returns the environment variables of processes that compute; those that the user has set keep their value.

    Both glibc and GNU OpenMP read theirs once, when a process starts.
    """
    chosen = KEEP_MEMORY | {"GOMP_SPINCOUNT": str(SPIN_COUNT)}
    if "OMP_WAIT_POLICY" in os.environ:  # it implies a count, which an explicit one would overrule
        del chosen["GOMP_SPINCOUNT"]
    return {name: os.environ.get(name, value) for name, value in chosen.items()}
