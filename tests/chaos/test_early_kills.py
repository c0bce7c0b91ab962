"""The first seconds of a command, in which it makes MLflow's file and starts Ray, may be killed any number of times."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.tiny_profile import command_of_table2

KILLS = int(os.environ.get("AIAYN_CHAOS_KILLS", "10"))
SEED = int(os.environ.get("AIAYN_CHAOS_SEED", "0"))


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(60 + 30 * KILLS)
def test_a_command_killed_again_and_again_at_its_start_ends_well(tmp_path: Path) -> None:
    """The driver alone is killed, after 1 to 10 seconds. The kills are spread over the making of MLflow's file."""
    chance, command = random.Random(SEED), command_of_table2(tmp_path / "runs")
    for number in range(KILLS):
        after_s = chance.uniform(1, 10)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as driver:
            time.sleep(after_s)
            driver.send_signal(signal.SIGKILL)
            said = driver.communicate()[0]
        assert driver.returncode in (-signal.SIGKILL, 0), f"kill {number} after {after_s:.1f} s: {said}"
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "MLflow" not in done.stderr
