"""A tracking server that is lost: a real one, killed or silent; nothing stops, and the same command sends the rest."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from pipeline.errors import UserError
from pipeline.store.artifacts import TrainingRun
from tests.support.arrived import assert_arrived, runs_of
from tests.support.tracking_server import TrackingServer
from tests.workflows.test_reproduce_table2 import TINY
from workflows.tracking.tracker import Tracker

LONG = ("recipes.base.training.updates=200", "recipes.base.training.checkpoint_updates=40")


def _start(server: TrackingServer, store: Path) -> "subprocess.Popen[str]":
    """Starts a command that fills one cell of Table 2."""
    command = [sys.executable, "-m", "workflows.reproduce_table2", "--pairs", "en-de", "--models", "base"]
    options = [word for setting in (*TINY, *LONG) for word in ("--set", setting)]
    return subprocess.Popen(
        [*command, "--store", str(store), *options],
        env={**os.environ, "MLFLOW_TRACKING_URI": server.uri},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _warnings(running: "subprocess.Popen[str]") -> list[str]:
    """Waits for a command, which must succeed, and returns its warnings."""
    _, told = running.communicate(timeout=600)
    assert running.returncode == 0, told
    return re.findall(r"WARNING: .*", told)


@pytest.mark.timeout(900)
def test_killed_in_mid_training(server: TrackingServer, tmp_path: Path) -> None:
    """One warning, and the training ends well; the same command sends what is missing, and makes nothing."""
    client, store = MlflowClient(server.uri), tmp_path / "runs"
    running = _start(server, store)
    try:
        while not [run for run in runs_of(client) if "loss" in run.data.metrics]:
            assert running.poll() is None, running.communicate()[1]
            time.sleep(0.2)
        server.kill()
        (warning,) = _warnings(running)
    finally:
        with suppress(ProcessLookupError):
            running.kill()
        server.start()
    assert warning.startswith(f"WARNING: MLflow at {server.uri} does not answer (")
    assert warning.endswith("; the run goes on, and the same command sends from the store what is missing")
    assert {run.info.status for run in runs_of(client)} == {"RUNNING"}
    (training,) = store.glob("store/training-*")
    made = {path.name for path in (store / "store").iterdir()}

    assert _warnings(_start(server, store)) == []
    assert_arrived(client, store, TrainingRun(training), tmp_path / "arrived")
    assert {path.name for path in (store / "store").iterdir()} == made


@contextmanager
def _silent(server: TrackingServer) -> Iterator[None]:
    """Suspends the server for as long as the body takes; clients wait for a second."""
    usual = os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"]
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "1"
    server.suspend()
    try:
        yield
    finally:
        server.resume()
        os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = usual


def test_a_silent_server_is_waited_for_once(
    server: TrackingServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It accepts connections and answers nothing: seconds and a warning, then neither until it is asked again."""
    tracker = Tracker(server.uri, "silent", tmp_path)
    run = tracker.open({"aiayn.workflow": "w"}, "workflow", {}).info.run_id
    with _silent(server):
        assert not tracker.attempt(lambda: tracker.results(run, {"bleu": 27.3}))
        began_s = time.monotonic()
        for _ in range(100):
            assert not tracker.attempt(lambda: tracker.results(run, {"bleu": 27.3}))
        assert time.monotonic() - began_s < 1
    tracker.is_away = False
    assert tracker.attempt(lambda: tracker.results(run, {"bleu": 27.3}))
    assert tracker.client.get_run(run).data.metrics == {"bleu": 27.3}
    assert len(caplog.records) == 1


def test_what_is_refused_does_not_stop_the_rest(
    server: TrackingServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A name that MLflow forbids: one warning that says so, and the server is not taken to be away."""
    tracker = Tracker(server.uri, "refused", tmp_path)
    run = tracker.open({"aiayn.workflow": "w"}, "workflow", {}).info.run_id
    for _ in range(2):
        assert not tracker.attempt(lambda: tracker.results(run, {"a name with §": 1.0}))
    assert tracker.attempt(lambda: tracker.results(run, {"bleu": 27.3}))
    (warning,) = caplog.records
    assert warning.message.startswith(f"MLflow at {server.uri} does not take what it is sent (")


def _open(tracker: Tracker) -> bool:
    return tracker.attempt(lambda: tracker.open({"aiayn.workflow": "f"}, "x", {}))


@pytest.mark.parametrize("uri", ["ftp://me:secret@host/x", "http://me:secret@", "http://me:sec/ret@127.0.0.1:9"])
def test_a_wrong_address_is_told_at_the_start(uri: str, tmp_path: Path) -> None:
    """In one line, without the password."""
    with pytest.raises(UserError, match="MLFLOW_TRACKING_URI") as caught:
        _open(Tracker(uri, "table2", tmp_path))
    assert not [word for word in ("secret", "sec/", "ret@", "\n") if word in str(caught.value)]


@pytest.mark.parametrize("place", ["127.0.0.1:9", "no-such-host.invalid:5000"])
def test_no_server_at_the_address(place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A warning without user and password: in containers the name of a server that is away does not resolve either."""
    assert not _open(Tracker(f"http://somebody:se@cret@{place}", "table2", tmp_path))
    (warning,) = caplog.records
    assert warning.message.startswith(f"MLflow at http://{place} does not answer (")
    assert not [word for word in ("somebody", "cret") if word in caplog.text]
