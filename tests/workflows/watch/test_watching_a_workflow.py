"""`aiayn watch` beside a real workflow: while it trains, on a terminal and as a page, and after kill -9."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray

from pipeline.store.store import LocalStore
from tests.support.command_line import CommandLine
from workflows.watch.server import serving
from workflows.watch.snapshot import Snapshot, record_of, take

ROOT = Path(__file__).parents[3]
SETTINGS = {
    "corpora.en-de.train_pairs": 600,
    "corpora.en-de.dev_pairs": 20,
    "corpora.en-de.test_pairs": 24,
    "vocabulary.size": 300,
    "recipes.base.training.updates": 100_000,
    "recipes.base.training.log_updates": 2,
    "recipes.base.training.validation_updates": 5,
    "recipes.base.training.compiled": "false",
    "recipes.base.training.model.d_model": 32,
    "recipes.base.training.model.n_layers": 1,
}
"""A training that does not end by itself."""
PATIENCE_S = 600
pytestmark = pytest.mark.timeout(2 * PATIENCE_S)  # seconds on a machine with nothing else to do


@dataclass
class Driver:
    """A workflow in a process of its own, on the session's cluster."""

    store: LocalStore
    process: subprocess.Popen[bytes]

    def look(self) -> Snapshot:
        """What is seen of it."""
        return take(self.store, record_of(self.store, None))

    def wait_for_curves(self) -> Snapshot:
        """Waits until the training has both curves."""
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            assert self.process.poll() is None
            if any(self.store.artifacts.glob("records/*.json")) and len((seen := self.look()).curves) == 2:
                return seen
            time.sleep(0.2)
        raise AssertionError("the training has written nothing")


@pytest.fixture(scope="module")
def driver(ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A workflow that trains until it is killed; the tests see it in their order."""
    store = LocalStore(tmp_path_factory.mktemp("watched"))
    command = [sys.executable, "-m", "workflows.reproduce_table2", "--pairs", "en-de", "--models", "base"]
    command += ["--address", ray.get_runtime_context().gcs_address, "--store", str(store.root)]
    command += [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    with (store.root / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        yield Driver(store, process)
    finally:
        process.kill()
        process.wait()


def test_it_is_seen_while_it_trains(driver: Driver) -> None:
    """The text's stages are done, the training runs and its curves grow, the rest is to come."""
    seen = driver.wait_for_curves()
    states = {stage.label: stage.state for stage in seen.stages}
    assert (states["clean en-de"], states["train en-de base"], states["table 2"]) == ("finished", "running", "waiting")
    before = len(seen.curves[0].points)
    end_s = time.monotonic() + PATIENCE_S
    while len(driver.look().curves[0].points) <= before and time.monotonic() < end_s:
        time.sleep(0.2)
    assert len(driver.look().curves[0].points) > before


def test_the_page_has_the_state_of_now(driver: Driver) -> None:
    """The same is served as JSON."""
    with serving(driver.look, 0) as server, urllib.request.urlopen(f"{server.address}state.json") as answer:
        state = json.load(answer)
    assert state["state"] == "running"
    assert [stage["label"] for stage in state["stages"] if stage["state"] == "running"] == ["train en-de base"]


def test_a_terminal_is_drawn_and_left_as_it_was(driver: Driver) -> None:
    """On a terminal the tree is redrawn in place; ctrl-C ends it with status 0, the cursor and settings as before."""
    parent, child = pty.openpty()
    before = termios.tcgetattr(child)
    command = [sys.executable, "-m", "workflows.cli", "watch", "--store", str(driver.store.root)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=child, stdout=child, stderr=child) as process:
        shown = b""
        end_s = time.monotonic() + PATIENCE_S
        while shown.count("▸ train en-de base".encode()) < 2 and time.monotonic() < end_s:
            shown += _read(parent)
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            shown += _read(parent)
        shown += _read(parent)
    assert process.returncode == 0
    assert b"Traceback" not in shown
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l") >= 0  # hidden, then shown again
    assert termios.tcgetattr(child) == before
    os.close(parent)
    os.close(child)


def _read(terminal: int) -> bytes:
    ready, _, _ = select.select([terminal], [], [], 0.2)
    return os.read(terminal, 65536) if ready else b""


def test_after_kill_9_it_says_where_it_stopped(driver: Driver, command_line: CommandLine) -> None:
    """Watching goes on until the process is gone; then the stage is named, with the command that continues it."""
    command = [sys.executable, "-m", "workflows.cli", "watch", "embedded", "--store", str(driver.store.root)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as watching:
        assert watching.stdout is not None
        while "train en-de base" not in (line := watching.stdout.readline()):
            assert line
        driver.process.kill()
        driver.process.wait()
        told, errors = watching.communicate(timeout=PATIENCE_S)
    assert (watching.returncode, errors) == (1, "")
    assert "interrupted at train en-de base" in told
    assert "to go on: python -m workflows.reproduce_table2 --pairs en-de" in told
    again = command_line.here("workflows.cli", "watch", "--store", str(driver.store.root))
    assert (again.returncode, again.stderr) == (1, "")
    assert "■ train en-de base" in again.stdout
