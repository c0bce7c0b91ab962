"""Table 2 with its store on a real S3 server: killed on one machine, continued on another without a shared disk.

A machine is a cache of its own; the commands start Ray clusters of their own. Run by `make test-slow`.
"""

import os
import re
import signal
import subprocess
import time
from itertools import count
from pathlib import Path

import pytest

from pipeline.store.store import Store
from tests.chaos.comparison import differences, outcome
from tests.chaos.workflow_process import ROOT
from tests.support.s3_server import FaultyProxy, S3Server, always
from tests.support.tiny_profile import TEXT, command_of_table2, training

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(1200)]

SETTINGS = {
    **TEXT,
    **training("recipes.base", 60, checkpoints=12, validations=3, dtype="float32"),  # by default the faster one
    "recipes.base.training.model.dropout": 0.1,
}
END_S = 600


def _start(store: str | Path, log: Path, **variables: str) -> subprocess.Popen[bytes]:
    command, environment = command_of_table2(store, SETTINGS), {**os.environ, **variables}
    with log.open("wb") as output:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)


def _can_recover(store: Store) -> bool:
    names = store.bucket.sizes_bytes("store")
    return any(re.match(r"\.making-training-.*/recovery/.*/manifest\.json", name) for name in names)


def test_killed_here_and_continued_there(at_s3: S3Server, tmp_path: Path) -> None:
    """Every file equals that of an undisturbed run on a local disk, although the service failed and was slow.

    A third machine with an empty disk runs nothing, and pulls no weights.
    """
    local = tmp_path / "local"
    assert _start(local, tmp_path / "local.log").wait(END_S) == 0, (tmp_path / "local.log").read_text()
    store = Store.at(f"{at_s3.bucket()}/runs")
    log = tmp_path / "first.log"
    with FaultyProxy(at_s3) as proxy:
        here = {"AIAYN_CACHE": str(tmp_path / "here"), "AWS_ENDPOINT_URL": proxy.address}
        first = _start(store.uri, log, **here)
        began_s, requests = time.monotonic(), count(1)
        while not _can_recover(store):
            assert first.poll() is None, log.read_text()
            assert time.monotonic() - began_s < END_S, log.read_text()
            proxy.delay_s, proxy.refuses = 0.05, lambda _: next(requests) % 7 == 0
            time.sleep(0.2)
        first.send_signal(signal.SIGKILL)
        first.wait()
        proxy.refuses = always  # processes left by the killed driver end without a signal
    second_log = tmp_path / "second.log"
    there = {"AIAYN_CACHE": str(tmp_path / "there")}
    assert _start(store.uri, second_log, **there).wait(END_S) == 0, second_log.read_text()
    assert "done in" in second_log.read_text()
    third_log = tmp_path / "third.log"
    assert _start(store.uri, third_log, AIAYN_CACHE=str(tmp_path / "third")).wait(END_S) == 0, third_log.read_text()
    assert "done in" not in third_log.read_text()  # no work was left
    assert not [*(tmp_path / "third").rglob("*.arrow")]
    for name in [name for name in store.bucket.folders("store") if store.find(name)]:
        store.fetch(name)
    assert differences(outcome(local), outcome(store.root)) == []
    assert not any(name.startswith(".making-") for name in store.bucket.folders("store"))
