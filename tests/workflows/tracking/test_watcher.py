"""workflows.tracking.watcher: nothing waits for a server, a real one that hangs or is killed, and nothing is lost."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from pipeline.store.artifacts import TrainingRun
from pipeline.store.store import Store
from tests.support.tiny_profile import TABLE_2, MadeTable2, overrides, training
from tests.support.tracking_server import TrackingServer
from workflows import reproduce_table2
from workflows.engine.plan import Reason
from workflows.profiles.translation import EMBEDDED
from workflows.reproduce_table2 import cells_of
from workflows.tracking import watcher as watcher_module
from workflows.tracking.export import FAILURE_TAG, TRAINING_TAG, Exporter, Workflow
from workflows.tracking.server import Server
from workflows.tracking.watcher import MlflowWatcher

HANGS_S = 120.0
"""Ends the server's pause if a call waits for it."""
CELLS = {f"en-de {cell.model}": cell for cell in cells_of(EMBEDDED, ["en-de"], ["base", "big"])}
BASE = CELLS["en-de base"].training
LONG = overrides({**TABLE_2, **training("recipes.base", 200, checkpoints=5, validations=20)})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackingServer]:
    """A server that responds before and after each test; it takes about 10 s to start."""
    with pytest.MonkeyPatch.context() as patch, TrackingServer(tmp_path_factory.mktemp("server")) as started:
        patch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")  # a busy machine is slow
        yield started


def runs_of(server: TrackingServer, experiment: str) -> dict[str, Run]:
    client = MlflowClient(server.uri)
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return {run.info.run_name: run for run in found}


def test_nothing_waits_for_a_server_that_hangs(
    server: TrackingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events return at once. Their data has arrived when the runs end, without a line that the disk damaged."""
    monkeypatch.setattr(watcher_module, "CHECK_S", 0.1)
    store = Store(tmp_path)
    store.scratch(BASE.name).mkdir(parents=True)
    lines = [json.dumps({"update": n, "loss": 9.0 - n, "train_s": float(n)}).encode() for n in range(1, 6)]
    (store.scratch(BASE.name) / "metrics.jsonl").write_bytes(b"\n".join([*lines, b'{"upd\xff": 6, "loss": 9.0}', b""]))
    server.pause()
    resumed = Timer(HANGS_S, server.resume)
    resumed.start()
    workflow = Workflow("f", "embedded", {}, CELLS, is_served=True)
    watcher = MlflowWatcher(Server(server.uri, "hangs", tmp_path), workflow, store)
    watcher.begin({BASE: Reason("never built")}, [])
    watcher.event(BASE, {"metrics": {"loss": 4.0}, "step": 5})
    watcher.idle()
    watcher.finished(BASE, "")
    watcher.failed("en-de base", CELLS["en-de base"].results, "its loss is NaN")
    assert resumed.is_alive(), "a call has waited for the server"
    resumed.cancel()
    server.resume()
    watcher.close(KeyError("paper_bleu"))
    runs = runs_of(server, "hangs")
    assert {name: (run.info.status, run.data.tags[FAILURE_TAG]) for name, run in runs.items()} == {
        "hangs embedded": ("FAILED", "'paper_bleu'"),
        "en-de base": ("FAILED", "its loss is NaN"),
        "en-de big": ("FAILED", "'paper_bleu'"),
    }
    history = MlflowClient(server.uri).get_metric_history(runs["en-de base"].info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(n, 9.0 - n) for n in range(1, 6)]


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
    send = Exporter._send

    def send_and_kill(exporter: Exporter, run: str, points: Sequence[Any]) -> None:
        send(exporter, run, points)
        if points:
            server.kill()

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Exporter, "_send", send_and_kill)
            reproduce_table2.main(overrides=LONG, pairs="en-de", models="base", store=store)
    finally:
        server.start()
    (warning,) = [each.message for each in caplog.records if "MLflow" in each.message]
    assert warning.startswith(f"MLflow at {server.uri} does not answer (")
    assert warning.endswith("; continuing without it; rerun the same command later to send what is missing")
    assert {run.info.status for run in runs_of(server, "table2").values()} == {"RUNNING"}
    (trained,) = {*store.glob("store/training-*")} - before
    made = {path.name for path in (store / "store").iterdir()}

    caplog.clear()
    reproduce_table2.main(overrides=LONG, pairs="en-de", models="base", store=store)
    assert [each for each in caplog.records if "MLflow" in each.message] == []
    assert {path.name for path in (store / "store").iterdir()} == made
    runs = runs_of(server, "table2")
    assert {name: run.info.status for name, run in runs.items()} == {
        "table2 embedded": "FINISHED",
        "en-de base": "FINISHED",
    }
    child = runs["en-de base"]
    assert child.data.tags[TRAINING_TAG] == TrainingRun(trained).manifest["fingerprint"]
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    for name in ("loss", "dev_perplexity"):
        arrived = client.get_metric_history(child.info.run_id, name)
        expected = sorted((line["update"], line[name]) for line in lines if name in line)
        assert sorted((point.step, point.value) for point in arrived) == expected
    assert {"sacrebleu.test", "chrf.test", "final_dev_perplexity"} <= child.data.metrics.keys()
    sent = {file.path for file in client.list_artifacts(runs["table2 embedded"].info.run_id)}
    assert {"table2.md", "table2.json", "report.html", "manifest.json"} <= sent
    assert {file.path for file in client.list_artifacts(child.info.run_id)} == {"samples.txt", "manifest.json"}
    (output,) = child.outputs.model_outputs
    assert str(client.get_logged_model(output.model_id).status) == "READY"
