"""A workflow's runs in MLflow: one per measured model. Nothing waits for a server that hangs."""

import json
import logging
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from mlflow.tracking import MlflowClient

from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from tests.support.tracking_server import TrackingServer
from workflows.engine.dag import to_step
from workflows.engine.reasons import Reason
from workflows.profiles.translation import EMBEDDED
from workflows.reproduce_table2 import cells_of
from workflows.tracking import tracker as tracker_module
from workflows.tracking.tracker import PARENT_TAG, Tracker
from workflows.tracking.watcher import MlflowWatcher, Workflow

HANGS_S = 120.0
"""Ends the server's pause if a call waits for it."""
CELLS = {f"en-de {cell.model}": cell for cell in cells_of(EMBEDDED, ["en-de"], ["base", "big"])}
BASE = to_step(CELLS["en-de base"].training)


def watching(server: TrackingServer, store: Store, experiment: str) -> MlflowWatcher:
    """Watches two models without any artifacts."""
    return MlflowWatcher(
        Tracker(server.uri, experiment, store.root), Workflow("f", "embedded", {}, CELLS, is_served=True), store
    )


def children(server: TrackingServer, experiment: str) -> dict[str, Any]:
    """The models' runs by name."""
    client = MlflowClient(server.uri)
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return {run.info.run_name: run for run in found if PARENT_TAG in run.data.tags}


def test_nothing_waits_for_a_server_that_hangs(server: TrackingServer, tmp_path: Path) -> None:
    """Events return at once. Their data has arrived, in order, when the runs are closed."""
    store, experiment = Store(tmp_path), "hangs"
    watcher = watching(server, store, experiment)
    store.scratch(BASE.name).mkdir(parents=True)
    lines = [{"update": n, "loss": 9.0 - n, "train_s": float(n)} for n in range(1, 6)]
    (store.scratch(BASE.name) / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    server.pause()
    resumed = Timer(HANGS_S, server.resume)
    resumed.start()
    watcher.begin({BASE: Reason("never built")}, [])
    watcher.event(BASE, {"metrics": {"loss": 4.0}, "step": 5})
    watcher.idle()
    watcher.finished(BASE, "")
    watcher.failed("en-de base", CELLS["en-de base"].results, "")
    assert resumed.is_alive(), "a call has waited for the server"
    resumed.cancel()
    server.resume()
    watcher.close("FAILED")
    runs = children(server, experiment)
    assert {name: run.info.status for name, run in runs.items()} == {"en-de base": "FAILED", "en-de big": "FAILED"}
    history = MlflowClient(server.uri).get_metric_history(runs["en-de base"].info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(line["update"], line["loss"]) for line in lines]


def test_a_server_that_was_away_at_the_start_gets_live_curves(
    server: TrackingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it responds, the runs are opened and the curve so far is sent, without a line damaged by the disk."""
    store, experiment = Store(tmp_path), "away at the start"
    monkeypatch.setattr(tracker_module, "AWAY_S", 0.0)
    server.kill()
    try:
        watcher = watching(server, store, experiment)
    finally:
        server.start()
    store.scratch(BASE.name).mkdir(parents=True)
    written = b'{"upd\xff": 4, "loss": 9.0}\n{"update": 5, "loss": 4.0, "train_s": 1.0}\n'
    (store.scratch(BASE.name) / "metrics.jsonl").write_bytes(written)
    watcher.event(BASE, {"metrics": {"loss": 4.0}, "step": 5})
    watcher.idle()
    watcher.close("FAILED")
    assert children(server, experiment)["en-de base"].data.metrics["loss"] == 4.0


def test_a_model_that_the_store_has_lost(
    server: TrackingServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A table in the store without its models: one warning names them, and their runs and the table's end."""
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "table2.md").write_text("| |\n|-|\n")
    watcher = watching(server, Store(tmp_path), "lost")
    with caplog.at_level(logging.WARNING, "workflows.tracking.watcher"):
        watcher.finish(Artifact(tmp_path / "table"), {"bleu": 27.3}, {}, {"en-de big"})
    assert [record.getMessage() for record in caplog.records if record.name.startswith("workflows")] == [
        "MLflow lacks results of en-de base that the store no longer has"
    ]
    runs = children(server, "lost")
    assert {run.info.status for run in runs.values()} == {"FAILED"}
    parent = MlflowClient(server.uri).get_run(runs["en-de base"].data.tags[PARENT_TAG])
    assert (parent.info.status, parent.data.metrics) == ("FINISHED", {"bleu": 27.3})
