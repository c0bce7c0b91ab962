import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pipeline.complexity.measure import threads_of
from pipeline.complexity.settings import TimingSettings
from pipeline.environment import CGROUPS, usable_cpus
from workflows import reproduce_table1
from workflows.cli.reproduce import reproduce


def test_the_cpus_that_this_process_may_use() -> None:
    before = os.sched_getaffinity(0)
    assert usable_cpus() == len(before)
    os.sched_setaffinity(0, [min(before)])
    try:
        assert usable_cpus() == 1
    finally:
        os.sched_setaffinity(0, before)


LIMITED = """
import os, sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
from pipeline.environment import CGROUPS, usable_cpus
print(usable_cpus())
"""


@pytest.mark.parametrize(("quota_us", "cpus"), [(100_000, 1), (40_000, 1), (10_000_000, len(os.sched_getaffinity(0)))])
def test_the_cpus_of_a_container_with_a_quota(quota_us: int, cpus: int) -> None:
    v1 = (CGROUPS / "cpu" / "cpu.cfs_quota_us").exists()
    outer = (CGROUPS / "cpu" if v1 else CGROUPS) / f"aiayn-test-{os.getpid()}"
    inner = outer / "inner"
    try:
        inner.mkdir(parents=True)
        file, quota = ("cpu.cfs_quota_us", f"{quota_us}") if v1 else ("cpu.max", f"{quota_us} 100000")
        (outer / file).write_text(quota)
        done = subprocess.run([sys.executable, "-c", LIMITED, str(inner)], capture_output=True, text=True, timeout=60)
    except OSError as error:
        pytest.skip(f"no cgroups to write to: {error}")
    finally:
        for group in (inner, outer):
            if group.exists():
                group.rmdir()
    assert done.stdout == f"{cpus}\n", done.stderr


def test_systems_that_do_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a CPU affinity, like on macOS, all CPUs count, also for Table 1."""
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cpus() == os.cpu_count()
    with threads_of(TimingSettings(threads=0)):
        assert torch.get_num_threads() == os.cpu_count()
    reproduce(*reproduce_table1.main(profile="cpu", plan=True, store=str(tmp_path)))
