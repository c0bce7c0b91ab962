"""pipeline.environment: the number of CPUs a process may use, on every system."""

import os
from pathlib import Path

import pytest
import torch

from pipeline.complexity.measure import threads_of
from pipeline.complexity.settings import TimingSettings
from pipeline.environment import usable_cpus
from workflows import reproduce_table1


def test_the_cpus_that_this_process_may_use() -> None:
    """A process limited to one CPU may use one."""
    before = os.sched_getaffinity(0)
    assert usable_cpus() == len(before)
    os.sched_setaffinity(0, [min(before)])
    try:
        assert usable_cpus() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_systems_that_do_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a CPU affinity, like on macOS, all CPUs count, also for Table 1."""
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cpus() == os.cpu_count()
    with threads_of(TimingSettings(threads=0)):
        assert torch.get_num_threads() == os.cpu_count()
    reproduce_table1.main(profile="cpu", plan=True, store=str(tmp_path))
