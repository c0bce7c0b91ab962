"""The load of the machine while a benchmark runs: other processes, and a hypervisor that takes processors away.

    began = Clocks.read()
    ...                                     # the benchmark; its processes must have ended before the next line
    load = load_since(began)

The figures are of Linux (`/proc/stat`, man 5 proc); on other systems they are None.
"""

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

BUSY = (0, 1, 2, 5, 6)
"""Columns of /proc/stat: user, nice, system, irq and softirq."""
STEAL = 7


@dataclass(frozen=True)
class Clocks:
    """Processor time used so far, in seconds."""

    wall_s: float
    busy_s: float
    """By all processes of the machine."""
    stolen_s: float
    """By other machines on the same host."""
    own_s: float
    """By this process and those of its children that have ended."""

    @classmethod
    def read(cls) -> Self | None:
        """Reads the clocks; returns None where there is no /proc/stat."""
        try:
            first, *_ = Path("/proc/stat").read_text(encoding="ascii").split("\n")
        except OSError:
            return None
        ticks = [int(number) / os.sysconf("SC_CLK_TCK") for number in first.split()[1:]]
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return cls(
            time.monotonic(),
            sum(ticks[column] for column in BUSY),
            ticks[STEAL],
            sum(usage.ru_utime + usage.ru_stime for usage in own),
        )


def load_since(began: Clocks | None) -> dict[str, Any]:
    """Returns the number of processors that others had on average, and the machine's number of them, for --json."""
    ended = Clocks.read()
    load: dict[str, Any] = {"cpus": os.cpu_count(), "other_processes_cpus": None, "stolen_cpus": None}
    if began and ended:
        wall_s = max(ended.wall_s - began.wall_s, 1e-9)
        others_s = (ended.busy_s - began.busy_s) - (ended.own_s - began.own_s)
        load["other_processes_cpus"] = max(0.0, others_s / wall_s)
        load["stolen_cpus"] = (ended.stolen_s - began.stolen_s) / wall_s
    return load


def sentence(load: dict[str, Any]) -> str:
    """Says what `load_since` found."""
    if load["stolen_cpus"] is None:
        return "the load of the machine was not measured: this system has no /proc/stat"
    return (
        f"meanwhile other processes had {load['other_processes_cpus']:.2f} of {load['cpus']} processors, and "
        f"{load['stolen_cpus']:.2f} were stolen by the host"
    )
