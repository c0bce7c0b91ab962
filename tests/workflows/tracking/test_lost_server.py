"""A lost tracking server, a real one, killed: the workflow continues, and the same command sends the rest."""

import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from pipeline.errors import UserError
from pipeline.store.artifacts import TrainingRun
from tests.support.tiny_profile import TABLE_2, MadeTable2, overrides, training
from tests.support.tracking_server import TrackingServer
from workflows import reproduce_table2
from workflows.tracking import tracker as tracker_module
from workflows.tracking.tracker import TRAINING_TAG, Tracker

LONG = overrides({**TABLE_2, **training("recipes.base", 200, checkpoints=5, validations=20)})


def runs_of(client: MlflowClient) -> list[Run]:
    """All runs of the experiment `table2`."""
    experiment = client.get_experiment_by_name("table2")
    return list(client.search_runs([experiment.experiment_id])) if experiment else []


def assert_arrived(client: MlflowClient, trained: TrainingRun) -> None:
    """Asserts that a run's curves, scores, table and model are there, and each point once."""
    fingerprint = trained.manifest["fingerprint"]
    (child,) = [run for run in runs_of(client) if run.data.tags.get(TRAINING_TAG) == fingerprint]
    parent = client.get_run(child.data.tags["mlflow.parentRunId"])
    assert (parent.info.status, child.info.status) == ("FINISHED", "FINISHED")
    lines = [json.loads(line) for line in (trained.folder / "metrics.jsonl").read_text().splitlines()]
    for name in ("loss", "dev_perplexity"):
        expected = sorted((line["update"], line[name]) for line in lines if name in line)
        arrived = client.get_metric_history(child.info.run_id, name)
        assert sorted((point.step, point.value) for point in arrived) == expected
    assert {
        "sacrebleu.test",
        "paper_bleu.test",
        "chrf.test",
        "final_dev_perplexity",
        "final_dev_accuracy",
    } <= child.data.metrics.keys()
    sent = {file.path for file in client.list_artifacts(parent.info.run_id)}
    assert {"table2.md", "report.html"} <= sent
    (output,) = child.outputs.model_outputs
    assert str(client.get_logged_model(output.model_id).status) == "READY"


@pytest.mark.timeout(900)
def test_killed_in_mid_training(
    server: TrackingServer,
    copy_of_table2: MadeTable2,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One warning, and the workflow succeeds. The same command sends what is missing without running a stage."""
    client, store = MlflowClient(server.uri), copy_of_table2.store
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    before = {*store.glob("store/training-*")}

    send = Tracker.curves

    def send_and_kill(tracker: Tracker, run: str, lines: Sequence[Mapping[str, Any]], last_at_s: float) -> None:
        send(tracker, run, lines, last_at_s)
        if lines:
            server.kill()

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tracker, "curves", send_and_kill)
            reproduce_table2.main(overrides=LONG, pairs="en-de", models="base", store=store)
    finally:
        server.start()
    (warning,) = [each.message for each in caplog.records if "MLflow" in each.message]
    assert warning.startswith(f"MLflow at {server.uri} does not answer (")
    assert warning.endswith("; continuing without it; rerun the same command later to send what is missing")
    assert {run.info.status for run in runs_of(client)} == {"RUNNING"}
    (trained,) = {*store.glob("store/training-*")} - before
    made = {path.name for path in (store / "store").iterdir()}

    caplog.clear()
    reproduce_table2.main(overrides=LONG, pairs="en-de", models="base", store=store)
    assert [each for each in caplog.records if "MLflow" in each.message] == []
    assert_arrived(client, TrainingRun(trained))
    assert {path.name for path in (store / "store").iterdir()} == made


def test_a_server_that_was_away_gets_the_rest_of_the_curve(
    server: TrackingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is retried after a while, not at once, and gets each point once. The user is warned once."""
    tracker, lines = Tracker(server.uri, "away", tmp_path), [{"update": n, "loss": 1 / n, "train_s": n} for n in (1, 2)]
    run = tracker.open({"aiayn.workflow": "f"}, "x", {}).info.run_id
    assert tracker.attempt(lambda: tracker.curves(run, lines[:1], 1.0))
    server.kill()
    try:
        assert not tracker.attempt(lambda: tracker.curves(run, lines, 2.0))
    finally:
        server.start()
    assert not tracker.attempt(lambda: pytest.fail("asked at once"))
    monkeypatch.setattr(tracker_module, "AWAY_S", 0.0)
    assert tracker.attempt(lambda: tracker.curves(run, lines, 2.0))
    assert not tracker.is_away
    assert sorted(point.step for point in tracker.client.get_metric_history(run, "loss")) == [1, 2]
    assert len(caplog.records) == 1


def test_a_server_that_hangs_costs_one_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts connections and never responds: one request waits, then none is sent for a while."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        tracker = Tracker(f"http://127.0.0.1:{silent.getsockname()[1]}", "table2", tmp_path)
        assert not _open(tracker)
        assert not _open(tracker)
        silent.settimeout(1)
        connections = []
        with suppress(TimeoutError):
            while True:
                connections.append(silent.accept()[0])
    for connection in connections:
        connection.close()
    assert len(connections) == 1


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
    """A warning without user and password. In containers, the name of a stopped server does not resolve either."""
    assert not _open(Tracker(f"http://somebody:se@cret@{place}", "table2", tmp_path))
    (warning,) = caplog.records
    assert warning.message.startswith(f"MLflow at http://{place} does not answer (")
    assert not [word for word in ("somebody", "cret") if word in caplog.text]
