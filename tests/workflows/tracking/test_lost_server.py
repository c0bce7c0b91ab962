"""A tracking server that is lost and comes back: a real one, killed or suspended; nothing is lost, nothing stops."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from pipeline.errors import UserError
from tests.support.tracking_server import TrackingServer
from workflows.tracking import delivery
from workflows.tracking.attachment import attach
from workflows.tracking.tracker import Tracker

LINES = [{"update": n, "loss": 5 - n / 100, "train_s": n / 10} for n in range(1, 101)]


def _journals(runs: Path) -> list[Path]:
    return sorted((runs / "mlflow-unsent").glob("*.jsonl"))


def _tracker(server: TrackingServer, experiment: str, runs: Path, *, opened: bool = True) -> Tracker:
    tracker = Tracker(server.uri, experiment, runs)
    if opened:
        tracker.workflow("w", "workflow", {"profile": "embedded", "mirror": "https://me:secret@mirror/"})
        tracker.model("t", "model", {"model": {"d_k": 64}}, {"commit": "abc"})
    return tracker


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


def _log_the_rest(tracker: Tracker, folder: Path) -> None:
    """What a workflow sends once it has trained a model."""
    folder.mkdir()
    (folder / "table2.md").write_text("# Table 2\n", encoding="utf-8")
    tracker.curves("t", LINES, ended=1_000_000.0)
    tracker.results("t", {"sacrebleu.test": 27.3})
    tracker.series("t", "dev_sacrebleu", {50: 20.0, 100: 25.5})
    tracker.tags("t", {"used.dtype": "float32"})
    tracker.text("t", "a translation", "samples.txt")
    tracker.end_model("t")
    tracker.results("", {"paper BLEU": 27.3})
    tracker.artifacts(folder, "fingerprint")
    tracker.describe(folder, "python -m x", ["models:/m@newest"])
    tracker.end()


def _runs(server: TrackingServer, experiment: str) -> tuple[MlflowClient, Run, Run]:
    """The server's parent and child run of an experiment, each of which it has once."""
    client = MlflowClient(server.uri)
    found = client.get_experiment_by_name(experiment)
    assert found
    runs = client.search_runs([found.experiment_id])
    (child,) = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    (parent,) = [run for run in runs if run is not child]
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    return client, parent, child


def _has_all(server: TrackingServer, experiment: str) -> None:
    """Asserts that the server has everything of `_tracker` and `_log_the_rest`, once."""
    client, parent, child = _runs(server, experiment)
    points = client.get_metric_history(child.info.run_id, "loss")
    assert [(point.step, point.value) for point in points] == [(line["update"], line["loss"]) for line in LINES]
    bleu = client.get_metric_history(child.info.run_id, "dev_sacrebleu")
    assert [(point.step, point.value) for point in bleu] == [(50, 20.0), (100, 25.5)]
    assert [point.value for point in client.get_metric_history(child.info.run_id, "sacrebleu.test")] == [27.3]
    assert child.data.params == {"model.d_k": "64"}
    assert parent.data.params == {"profile": "embedded", "mirror": "https://mirror/"}
    assert {name: child.data.tags[name] for name in ("commit", "used.dtype", "aiayn.curves")} == {
        "commit": "abc",
        "used.dtype": "float32",
        "aiayn.curves": "complete",
    }
    assert parent.data.metrics == {"paper BLEU": 27.3}
    assert "### Table 2" in parent.data.tags["mlflow.note.content"]
    assert [file.path for file in client.list_artifacts(parent.info.run_id)] == ["table2.md"]
    assert [file.path for file in client.list_artifacts(child.info.run_id)] == ["samples.txt"]
    assert (parent.info.status, child.info.status) == ("FINISHED", "FINISHED")


def test_killed_in_mid_run_and_back_for_the_next_command(
    server: TrackingServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning; figures still in memory are kept too; the next command, of another workflow, sends everything."""
    tracker = _tracker(server, "killed", tmp_path)
    for line in LINES[:50]:
        tracker.metrics("t", line, line["update"], time.time())
    server.kill()
    try:
        began_s = time.monotonic()
        for line in LINES[50:]:
            tracker.metrics("t", line, line["update"], time.time())
        tracker._flushed = -1e9  # as if five seconds had gone by
        tracker.metrics("t", {"loss": LINES[-1]["loss"]}, 100, time.time())
        _log_the_rest(tracker, tmp_path / "table")
        assert time.monotonic() - began_s < 5
        (journal,) = _journals(tmp_path)
        (warning,) = [record.message for record in caplog.records]
        told, reason, remedy = re.split(r" \(|\); ", warning)
        assert told == f"the tracking server at {server.uri} does not answer"
        assert reason.startswith(("[Errno 111] Connection refused", "[Errno 104] Connection reset"))  # if still open
        assert remedy == f"figures are kept in {journal} and sent when it is back"
        assert "secret" not in journal.read_text()
    finally:
        server.start()
    Tracker(server.uri, "another", tmp_path).workflow("v", "another workflow", {})
    _has_all(server, "killed")
    assert _journals(tmp_path) == []
    assert list((tmp_path / "mlflow-unsent" / ".locks").glob("*.json")) == []


def test_silent_and_back_in_the_same_run(
    server: TrackingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that accepts connections and answers nothing costs seconds once, then nothing until the next attempt."""
    tracker = _tracker(server, "silent", tmp_path)
    with _silent(server):
        tracker.results("t", {"sacrebleu.test": 1.0})
        began_s = time.monotonic()
        for _ in range(100):
            tracker.results("t", {"sacrebleu.test": 27.3})
            tracker.retry()
        assert time.monotonic() - began_s < 1
        assert len(_journals(tmp_path)) == 1
    monkeypatch.setattr(tracker, "_next_try_s", 0.0)  # as if the pause were over
    tracker.retry()
    assert _journals(tmp_path) == []
    client, _, child = _runs(server, "silent")
    assert [point.value for point in client.get_metric_history(child.info.run_id, "sacrebleu.test")] == [1.0, 27.3]
    tracker.metrics("t", {"loss": 4.0}, 200, time.time())
    tracker.end()
    assert [point.step for point in client.get_metric_history(child.info.run_id, "loss")] == [200]
    assert len(caplog.records) == 1


def test_away_from_the_start(server: TrackingServer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The workflow runs all the same; the same command sends everything when the server answers again."""
    with _silent(server):
        tracker = _tracker(server, "away", tmp_path)
        _log_the_rest(tracker, tmp_path / "table")
        assert len(caplog.records) == 1
    again = _tracker(server, "away", tmp_path)
    assert _journals(tmp_path) == []
    again.end()
    _has_all(server, "away")


def test_interrupted_while_the_server_is_away(server: TrackingServer, tmp_path: Path) -> None:
    """The end that was kept comes before what the same command sends next, so its runs go on and finish."""
    with _silent(server):
        _tracker(server, "interrupted", tmp_path).end("KILLED")
    again = _tracker(server, "interrupted", tmp_path)
    assert {run.info.status for run in _runs(server, "interrupted")[1:]} == {"RUNNING"}
    _log_the_rest(again, tmp_path / "table")
    _has_all(server, "interrupted")


def test_a_command_killed_while_the_server_is_away(server: TrackingServer, tmp_path: Path) -> None:
    """What it kept is sent by the next command; a line that it did not finish writing does no harm."""
    script = (
        "import os, sys; from pathlib import Path; from workflows.tracking.tracker import Tracker\n"
        "tracker = Tracker(sys.argv[1], 'orphan', Path(sys.argv[2]))\n"
        "tracker.workflow('w', 'workflow', {}); tracker.model('t', 'model', {}); tracker.results('t', {'bleu': 27.3})\n"
        "os.kill(os.getpid(), 9)"
    )
    with _silent(server):
        killed = subprocess.run([sys.executable, "-c", script, server.uri, str(tmp_path)], check=False, env=os.environ)
        assert killed.returncode == -signal.SIGKILL
    (journal,) = _journals(tmp_path)
    with journal.open("a") as file:
        file.write('{"call": "results", "argum')
    Tracker(server.uri, "next", tmp_path).workflow("v", "next", {})
    _, _, child = _runs(server, "orphan")
    assert child.data.metrics == {"bleu": 27.3}
    assert _journals(tmp_path) == []


def test_what_a_living_command_keeps_is_its_own(server: TrackingServer, tmp_path: Path) -> None:
    """Another command does not send it, nor does one with another server."""
    with _silent(server):
        first = _tracker(server, "living", tmp_path)
    (journal,) = _journals(tmp_path)
    _tracker(server, "other", tmp_path).end()
    assert _journals(tmp_path) == [journal]
    first._journal.leave()
    Tracker(f"sqlite:///{tmp_path}/mlflow.db", "elsewhere", tmp_path).workflow("w", "elsewhere", {})
    assert _journals(tmp_path) == [journal]
    first.end()
    assert _journals(tmp_path) == []
    assert {run.info.status for run in _runs(server, "living")[1:]} == {"FINISHED"}


def test_a_server_that_has_forgotten_the_runs(server: TrackingServer, tmp_path: Path) -> None:
    """Where its runs are gone, as after a restart on an empty database, they are opened again."""
    tracker = _tracker(server, "forgotten", tmp_path)
    client, parent, child = _runs(server, "forgotten")
    for run in (parent, child):
        client.delete_run(run.info.run_id)
    _log_the_rest(tracker, tmp_path / "table")
    _has_all(server, "forgotten")
    assert _journals(tmp_path) == []


def test_what_is_refused_for_good_is_not_kept(
    server: TrackingServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A name that MLflow forbids, a folder that is gone: one warning, and the rest is sent; MLflow prints nothing."""
    tracker = _tracker(server, "refused", tmp_path)
    tracker.results("t", {"a name with §": 1.0})
    tracker.artifacts(tmp_path / "gone", "fingerprint")
    _log_the_rest(tracker, tmp_path / "table")
    _has_all(server, "refused")
    assert _journals(tmp_path) == []
    (warning,) = caplog.records
    assert warning.message.startswith(f"MLflow at {server.uri} does not take what it is sent: ")
    assert capfd.readouterr().out == ""


def test_figures_of_a_model_are_attached_later(
    server: TrackingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files for the runs of a training are kept as well."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    _tracker(server, "attached", tmp_path).end()
    figures = tmp_path / "attention"
    figures.mkdir()
    (figures / "attention.html").write_text("<p>")
    with _silent(server):
        assert attach(tmp_path, "t", figures, "f", "attention") == 0
    Tracker(server.uri, "next", tmp_path).workflow("v", "next", {})
    client, _, child = _runs(server, "attached")
    assert [file.path for file in client.list_artifacts(child.info.run_id, "attention")] == ["attention/attention.html"]


def test_the_pause_grows_with_what_an_attempt_takes(server: TrackingServer, tmp_path: Path) -> None:
    """So that asking a silent server takes a twentieth of the time at most."""
    tracker = _tracker(server, "pause", tmp_path)
    with _silent(server):
        began_s = time.monotonic()
        tracker.results("t", {"bleu": 1.0})
        tracker._next_try_s = 0.0
        asked_s = time.monotonic()
        tracker.retry()
        took_s = time.monotonic() - asked_s
        assert 1 <= took_s < asked_s - began_s + 1
        assert tracker._next_try_s >= asked_s + took_s * delivery.PAUSE_FACTOR
    tracker.end()
    assert _journals(tmp_path) == []


@pytest.mark.parametrize("uri", ["ftp://me:secret@host/x", "http://me:secret@", "http://me:sec/ret@127.0.0.1:9"])
def test_a_wrong_address_is_told_at_the_start(uri: str, tmp_path: Path) -> None:
    """In one line, without the password."""
    with pytest.raises(UserError, match="MLFLOW_TRACKING_URI") as caught:
        Tracker(uri, "table2", tmp_path).workflow("f", "x", {})
    assert not [word for word in ("secret", "sec/", "ret@", "\n") if word in str(caught.value)]
    assert _journals(tmp_path) == []


@pytest.mark.parametrize("place", ["127.0.0.1:9", "no-such-host.invalid:5000"])
def test_no_server_at_the_address(place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A warning without user and password: in containers the name of a server that is away does not resolve either."""
    tracker = Tracker(f"http://somebody:se@cret@{place}", "table2", tmp_path)
    assert tracker.workflow("f", "x", {}) is None
    tracker.end()
    (warning,) = caplog.records
    assert warning.message.startswith(f"the tracking server at http://{place} does not answer (")
    (journal,) = _journals(tmp_path)
    assert json.loads(journal.read_text().split("\n")[0]) == {"uri": f"http://{place}", "experiment": "table2"}
    assert not [word for word in ("somebody", "cret") if word in caplog.text + journal.read_text()]
