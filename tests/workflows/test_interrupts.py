"""An impatient user presses ctrl-C three times."""

import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.support.tiny_profile import TABLE_2, command_of_table2, training
from tests.support.waiting import until


@pytest.mark.ray
def test_three_interrupts_leave_one_line_and_no_process(tmp_path: Path) -> None:
    """They come half a second apart, in mid-training; the last ones meet Ray as it ends."""
    command = command_of_table2(tmp_path / "runs", {**TABLE_2, **training("recipes.base", 100_000, checkpoints=5)})
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        until(lambda: [*(tmp_path / "runs").glob("store/.making-training-*/metrics.jsonl")], 240, process=driver)
        processes = psutil.Process(driver.pid).children(recursive=True)
        for _ in range(3):
            driver.send_signal(signal.SIGINT)
            time.sleep(0.5)
        errors = driver.communicate()[1]
    assert (driver.returncode, errors) == (130, "stopped; run the same command again to continue\n")
    assert len(processes) > 3
    until(lambda: not any(process.is_running() for process in processes), 30)
