"""Several workflows at once on an MLflow server with PostgreSQL, as a team would run it; then the server is killed."""

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import mlflow.artifacts
import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from pipeline.store.artifacts import Checkpoint, TrainingRun
from pipeline.store.store import LocalStore
from tests.support.postgres import binaries, postgres
from tests.support.tracking_server import TrackingServer
from tests.workflows.test_reproduce_table2 import TINY
from workflows.runs.record import Record, read_records
from workflows.tables.measurements import read_metrics
from workflows.tracking.models import TRANSLATOR_TAG
from workflows.tracking.tracker import TRAINING_TAG

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(binaries() is None, reason="PostgreSQL is not installed"),
    pytest.mark.skipif(
        importlib.util.find_spec("psycopg2") is None, reason="psycopg2, of the extra cluster, is missing"
    ),
]
AT_ONCE = 3
STEPS = ("corpus.", "cleaning.", "vocabulary.", "encoding.", "training.", "averaging.", "decoding.")
LONG = "recipes.base.training.updates=200"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackingServer]:
    """A server of two processes."""
    with (
        postgres() as database,
        TrackingServer(tmp_path_factory.mktemp("server"), database, ("--workers", "2")) as server,
    ):
        yield server


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    """The folder that all commands share."""
    return LocalStore(tmp_path_factory.mktemp("runs"))


def _start(server: TrackingServer, store: LocalStore, *settings: str) -> "subprocess.Popen[str]":
    """Starts a command that fills one cell of Table 2."""
    command = [sys.executable, "-m", "workflows.reproduce_table2", "--pairs", "en-de", "--models", "base"]
    options = [word for setting in (*TINY, *settings) for word in ("--set", setting)]
    return subprocess.Popen(
        [*command, "--store", str(store.root), *options],
        env={**os.environ, "MLFLOW_TRACKING_URI": server.uri},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish(running: "subprocess.Popen[str]") -> str:
    """Waits for a command, which must succeed, and returns what it told on standard error."""
    _, told = running.communicate(timeout=900)
    assert running.returncode == 0, told
    return told


def _runs(client: MlflowClient) -> list[Run]:
    experiment = client.get_experiment_by_name("table2")
    return list(client.search_runs([experiment.experiment_id])) if experiment else []


def _training(store: LocalStore, record: Record) -> TrainingRun:
    (step,) = [step for step in record.steps if step.stage.startswith("training.")]
    return TrainingRun(store.folder(step.folder))


def _assert_all_arrived(client: MlflowClient, store: LocalStore, record: Record, target: Path) -> None:
    """Asserts that the server has what the store has of one run, once: curves, settings, artifacts, model, endings."""
    training = _training(store, record)
    fingerprint = training.manifest["fingerprint"]
    (child,) = [run for run in _runs(client) if run.data.tags.get(TRAINING_TAG) == fingerprint]
    parent = client.get_run(child.data.tags["mlflow.parentRunId"])
    assert (parent.info.status, child.info.status) == ("FINISHED", "FINISHED")

    expected: dict[str, dict[int, float]] = {}
    for line in read_metrics(training):
        for name, value in line.items():
            if name != "update" and isinstance(value, int | float):
                expected.setdefault(name, {}).setdefault(line["update"], float(value))
    assert {"loss", "dev_perplexity", "tokens_s"} <= expected.keys()
    for name, points in expected.items():
        arrived = client.get_metric_history(child.info.run_id, name)
        assert sorted((point.step, point.value) for point in arrived) == sorted(points.items()), name

    (model,) = record.models
    assert {name: child.data.metrics[name] for name in model.figures} == dict(model.figures) != {}
    assert {name: parent.data.metrics[name] for name in record.figures} == dict(record.figures) != {}
    settings = {name: str(value) for name, value in record.settings.items()}  # of the one model, and of the workflow
    assert parent.data.params == {**settings, "overrides": record.overrides}
    of_steps = {name: value for name, value in settings.items() if name.startswith(STEPS)}
    assert child.data.params.items() >= of_steps.items()
    assert child.data.params["training.seed"] == str(training.load().settings.seed)
    assert parent.data.params["overrides"] == child.data.params["overrides"] == record.overrides

    table = store.folder(record.table)
    sent = Path(client.download_artifacts(parent.info.run_id, "", _new(target / "table")))
    files = [path.relative_to(table) for path in table.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"table2.md", "report.html"}
    for path in files:
        assert (sent / path).read_bytes() == (table / path).read_bytes(), path
    (output,) = client.get_run(child.info.run_id).outputs.model_outputs
    kept = client.get_logged_model(output.model_id)
    (averaged,) = [step for step in record.steps if step.stage.startswith("averaging.")]
    checkpoint = Checkpoint(store.folder(averaged.folder))
    assert (str(kept.status), kept.tags[TRANSLATOR_TAG]) == ("READY", checkpoint.manifest["fingerprint"])
    files_of_model = Path(client.download_artifacts(child.info.run_id, "samples.txt", _new(target / "samples")))
    assert files_of_model.read_text().strip()
    mlflow.artifacts.download_artifacts(
        kept.artifact_location, dst_path=_new(target / "model"), tracking_uri=client.tracking_uri
    )
    (weights,) = (target / "model").rglob("model.safetensors")
    assert weights.read_bytes() == (checkpoint.folder / "model.safetensors").read_bytes()


def _new(folder: Path) -> str:
    folder.mkdir(parents=True)
    return str(folder)


def test_workflows_that_log_at_once(server: TrackingServer, store: LocalStore, tmp_path: Path) -> None:
    """Everything of each arrives through the server, under runs of its own."""
    running = [_start(server, store, f"recipes.base.training.seed={seed}") for seed in range(1, 1 + AT_ONCE)]
    told = [_finish(command) for command in running]
    assert not [text for text in told if "WARNING" in text]
    client, records = MlflowClient(server.uri), read_records(store)
    assert len(records) == AT_ONCE
    assert len(_runs(client)) == 2 * AT_ONCE
    for i, record in enumerate(records):
        _assert_all_arrived(client, store, record, tmp_path / str(i))
    versions = client.search_model_versions("name = 'aiayn-en-de-base'")
    assert len(versions) == AT_ONCE
    assert not (store.root / "mlflow-unsent").exists()


def test_killed_in_mid_run(server: TrackingServer, store: LocalStore, tmp_path: Path) -> None:
    """The workflow finishes with one warning; the next one sends what the server lacks, while it makes its own."""
    client, before = MlflowClient(server.uri), {run.info.run_id for run in _runs(MlflowClient(server.uri))}
    running = _start(server, store, LONG, "recipes.base.training.checkpoint_updates=40")
    try:
        while not [run for run in _runs(client) if run.info.run_id not in before and "loss" in run.data.metrics]:
            assert running.poll() is None, running.communicate()[1]
            time.sleep(0.2)
        server.kill()
        told = _finish(running)
    finally:
        with suppress(ProcessLookupError):
            running.kill()
        server.start()
    assert re.findall(r"WARNING: .*", told) == [
        next(line for line in told.splitlines() if line.startswith(f"WARNING: the tracking server at {server.uri} "))
    ]
    (journal,) = (store.root / "mlflow-unsent").glob("*.jsonl")
    record = next(one for one in read_records(store) if LONG in one.overrides)
    sent = [run for run in _runs(client) if run.info.run_id not in before]
    assert {run.info.status for run in sent} == {"RUNNING"}

    assert "WARNING" not in _finish(_start(server, store, "recipes.base.training.seed=1"))  # all of it is cached
    assert not journal.exists()
    _assert_all_arrived(client, store, record, tmp_path)
