"""The load of the machine beside a benchmark."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from workflows.benchmarks.load import Clocks, load_since, sentence

BUSY_S = 2.0
pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the load is read from /proc/stat")


def test_own_work_is_not_counted_as_anothers() -> None:
    """Work of this process and of a child that has ended appears in `own_s`, whatever else the machine does."""
    began = Clocks.read()
    until = time.process_time() + 0.5
    while time.process_time() < until:
        pass
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"], check=True)
    ended = Clocks.read()
    assert began
    assert ended
    assert 0.95 <= ended.own_s - began.own_s <= 3
    assert ended.busy_s - began.busy_s >= 0.9 * (ended.own_s - began.own_s)


def test_another_process_is_counted() -> None:
    """A busy process that has not ended takes its share of the processors, which the sentence names."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        time.sleep(0.2)
        began = Clocks.read()
        time.sleep(BUSY_S)
        load = load_since(began)
        other.kill()
    # On a crowded machine it gets less than a whole processor.
    assert load["other_processes_cpus"] > 0.3
    assert f"{load['other_processes_cpus']:.2f} of {load['cpus']} processors" in sentence(load)


def test_a_system_without_the_clocks_says_so() -> None:
    """A figure that was not measured is None and is named as such."""
    load = load_since(None)
    assert load["other_processes_cpus"] is load["stolen_cpus"] is None
    assert "was not measured" in sentence(load)
