"""workflows.tracking.watcher: what the store has arrives in MLflow once, and nothing waits for a server.

The servers that hang or are killed are real.
"""

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from mlflow.entities import Run as MlflowRun
from mlflow.tracking import MlflowClient
from mlflow.utils.file_utils import local_file_uri_to_path

from pipeline.artifacts import TrainingRun
from pipeline.errors import UserError
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from tests.support.tiny_profile import TABLE_2, MadeTable2, overrides, run_in_process, training
from tests.support.tracking_server import TrackingServer
from workflows import reproduce_table2
from workflows.cli.reproduce import reproduce
from workflows.engine.plan import Reason
from workflows.profiles.loading import load_profile
from workflows.profiles.translation import EMBEDDED
from workflows.reproduce_table2 import cells_of
from workflows.runs import Record, Run
from workflows.tracking import watcher as watcher_module
from workflows.tracking.addresses import default_uri
from workflows.tracking.server import TRAINING_TAG, Server
from workflows.tracking.watcher import FAILURE_TAG, PARENT_TAG, MlflowWatcher, Workflow

HANGS_S = 120.0
"""Ends the server's pause if a call waits for it."""
CELLS = {f"en-de {cell.model}": cell for cell in cells_of(EMBEDDED, ["en-de"], ["base", "big"])}
BASE = CELLS["en-de base"].training
NAME = "en-de base"
KILLED = """
import os, signal, sys
from pathlib import Path
from tests.workflows.tracking.test_watcher import watcher_of
watcher_of(Path(sys.argv[1]), "workflow", profile="embedded", mirrors=["https://me:secret@mirror/"]).sync()
os.kill(os.getpid(), signal.SIGKILL)
"""
LONG = overrides({**TABLE_2, **training("recipes.base", 200, checkpoints=5, validations=20)})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackingServer]:
    """A server that responds before and after each test; it takes about 10 s to start."""
    with pytest.MonkeyPatch.context() as patch, TrackingServer(tmp_path_factory.mktemp("server")) as started:
        patch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")  # a busy machine is slow
        yield started


def watcher_of(root: Path, fingerprint: str, **params: Any) -> MlflowWatcher:
    """Sends a workflow of the cell that the session has made, from a store that may lack it."""
    profile = load_profile(overrides=overrides(TABLE_2))
    models = {f"{cell.pair} {cell.model}": cell for cell in cells_of(profile, ["en-de"], ["base"])}
    workflow = Workflow(fingerprint, "embedded", params, models)
    return MlflowWatcher(Server(default_uri(root), "table2", root), workflow, Store(root))


def sent_to(root: Path, condition: str = "tags.`aiayn.workflow` = 'workflow'") -> dict[str, MlflowRun]:
    server = Server(default_uri(root), "table2", root)
    return {run.info.run_name: run for run in server.client.search_runs([server.experiment_id], condition)}


def points_of(root: Path, run: MlflowRun) -> Counter[tuple[str, int]]:
    """How often MLflow has a point of each metric and update."""
    client = Server(default_uri(root), "table2", root).client
    histories = [client.get_metric_history(run.info.run_id, name) for name in run.data.metrics]
    return Counter((point.key, point.step) for each in histories for point in each)


def runs_of(server: TrackingServer, experiment: str) -> dict[str, MlflowRun]:
    client = MlflowClient(server.uri)
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return {run.info.run_name: run for run in found}


def test_no_call_waits_for_the_server(server: TrackingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events return at once. Their data has arrived when the runs end, without a line that the disk damaged."""
    monkeypatch.setattr(watcher_module, "CHECK_S", 0.1)
    store = Store(tmp_path)
    store.scratch(BASE.name).mkdir(parents=True)
    lines = [json.dumps({"update": n, "loss": 9.0 - n, "train_s": float(n)}).encode() for n in range(1, 6)]
    (store.scratch(BASE.name) / "metrics.jsonl").write_bytes(b"\n".join([*lines, b'{"upd\xff": 6, "loss": 9.0}', b""]))
    server.pause()
    resumed = Timer(HANGS_S, server.resume)
    resumed.start()
    watcher = MlflowWatcher(Server(server.uri, "hangs", tmp_path), Workflow("f", "my text's", {}, CELLS), store)
    watcher.begin({BASE: Reason("never built")}, [])
    watcher.failed("en-de base", CELLS["en-de base"].results, "its loss is NaN")
    assert resumed.is_alive(), "a call has waited for the server"
    resumed.cancel()
    server.resume()
    watcher.__exit__(None, KeyError("paper_bleu"), None)
    runs = runs_of(server, "hangs")
    assert {name: (run.info.status, run.data.tags[FAILURE_TAG]) for name, run in runs.items()} == {
        "hangs my text's": ("FAILED", "'paper_bleu'"),
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
    send = MlflowWatcher._send

    def send_and_kill(watcher: MlflowWatcher, run: str, points: Sequence[Any]) -> None:
        send(watcher, run, points)
        if points:
            server.kill()

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MlflowWatcher, "_send", send_and_kill)
            reproduce(*reproduce_table2.main(overrides=LONG, pairs="en-de", models="base", store=store))
    finally:
        server.start()
    (warning,) = [each.message for each in caplog.records if "MLflow" in each.message]
    assert warning.startswith(f"MLflow at {server.uri} does not answer (")
    assert warning.endswith("; continuing without it; rerun the same command later to send what is missing")
    assert {run.info.status for run in runs_of(server, "table2").values()} == {"RUNNING"}
    (trained,) = {*store.glob("store/training-*")} - before
    made = {path.name for path in (store / "store").iterdir()}

    caplog.clear()
    reproduce(*reproduce_table2.main(overrides=LONG, pairs="en-de", models="base", store=store))
    assert [each for each in caplog.records if "MLflow" in each.message] == []
    assert {path.name for path in (store / "store").iterdir()} == made
    runs = runs_of(server, "table2")
    assert {name: run.info.status for name, run in runs.items()} == dict.fromkeys(("table2 embedded", NAME), "FINISHED")
    child = runs[NAME]
    assert child.data.tags[TRAINING_TAG] == TrainingRun(trained).manifest["fingerprint"]
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    for name in ("loss", "dev_perplexity"):
        arrived = client.get_metric_history(child.info.run_id, name)
        expected = sorted((line["update"], line[name]) for line in lines if name in line)
        assert sorted((point.step, point.value) for point in arrived) == expected
    assert {"sacrebleu.test", "chrf.test", "final_dev_perplexity"} <= child.data.metrics.keys()
    sent = {file.path for file in client.list_artifacts(runs["table2 embedded"].info.run_id)}
    assert {"table2.md", "table2.json", "report.html", "manifest.json"} <= sent
    assert {file.path for file in client.list_artifacts(child.info.run_id)} == {
        "samples.txt",
        "dev_samples.txt",
        "manifest.json",
    }


@pytest.fixture
def made(copy_of_table2: MadeTable2) -> MadeTable2:
    """A finished cell that MLflow does not know."""
    (copy_of_table2.store / "mlflow.db").unlink()
    shutil.rmtree(copy_of_table2.store / "mlartifacts")
    return copy_of_table2


def test_two_equal_commands_at_once_are_one_run(made: MadeTable2) -> None:
    code = KILLED.replace("os.kill(os.getpid(), signal.SIGKILL)", "")
    commands = [subprocess.Popen([sys.executable, "-c", code, str(made.store)], stderr=subprocess.PIPE) for _ in "ab"]
    assert [command.communicate()[1] for command in commands] == [b"", b""]
    assert len(Server(default_uri(made.store), "table2", made.store).client.search_runs(["1"])) == 2


def test_an_export_is_continued_after_a_kill_and_repeated(made: MadeTable2) -> None:
    """The curve comes from a process that is killed before the model is scored, the rest from two complete exports.

    Meanwhile, the command of another table ends the runs that the kill has left, unless they may be another store's.
    """
    root = made.store
    (scored,) = [path for path in root.glob("store/scoring-*") if "words" not in (path / "manifest.json").read_text()]
    aside = scored.rename(root / "aside")
    assert run_in_process(sys.executable, "-c", KILLED, str(root)).returncode == -signal.SIGKILL
    half = sent_to(root)
    assert {run.info.status for run in half.values()} == {"RUNNING"}
    assert "loss" in half[NAME].data.metrics
    assert "sacrebleu.test" not in half[NAME].data.metrics
    watcher_of(root, "another").sync()
    assert {run.info.status for run in sent_to(root).values()} == {"RUNNING"}, "of a store without such a command"
    record = Record(command="", commit="", host="", began=datetime.now(UTC), table="tabulating-workflow", artifacts={})
    (folder := root / "table2" / "embedded" / "2").mkdir()
    Run(root, folder, record).save()
    watcher_of(root, "another").sync()
    assert {run.info.status for run in sent_to(root).values()} == {"KILLED"}
    aside.rename(scored)

    table, counts = Artifact(next(root.glob("store/tabulating-*"))), []
    for _ in range(2):
        watcher_of(root, "workflow", profile="another").finish(table, {"bleu": 27.3}, {}, {})
        (root / "mlartifacts" / ".complete" / "workflow").unlink()
        runs = sent_to(root)
        counts.append([points_of(root, run) for run in runs.values()])
    assert counts[0] == counts[1]
    assert {n for points in counts[0] for n in points.values()} == {1}
    assert {n: run.info.run_id for n, run in runs.items()} == {n: run.info.run_id for n, run in half.items()}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    parent, child = runs["table2 embedded"], runs[NAME]
    lines = [json.loads(line) for line in next(root.glob("store/training-*/metrics.jsonl")).read_text().splitlines()]
    expected = {(name, line["update"]) for line in lines for name in ("loss", "dev_nll") if name in line}
    assert {key for key in counts[0][0] + counts[0][1] if key[0] in ("loss", "dev_nll")} == expected
    assert parent.data.params["profile"] == "embedded"  # MLflow rejects changes
    assert parent.data.params["mirrors"] == "['https://mirror/']"
    assert child.data.tags[PARENT_TAG] == parent.info.run_id


def test_runs_show_their_texts_and_user(made_table2: MadeTable2) -> None:
    runs = sent_to(made_table2.store, "")
    assert runs.keys() == {"table2 embedded", NAME}
    for run in runs.values():
        assert run.info.user_id == run.data.tags["mlflow.user"] != "unknown"
        inputs = {each.dataset.name: each.tags[0].value for each in run.inputs.dataset_inputs}
        evaluated = dict.fromkeys(("generate en-de dev", "generate en-de test"), "evaluation")
        assert inputs == {"generate en-de": "training", **evaluated}
        folders = [local_file_uri_to_path(json.loads(each.dataset.source)["uri"]) for each in run.inputs.dataset_inputs]
        assert all(Path(folder).is_dir() for folder in folders)
    shown = Path(local_file_uri_to_path(runs[NAME].info.artifact_uri), "dev_samples.txt").read_text(encoding="utf-8")
    n_validations = next(made_table2.store.glob("store/training-*/metrics.jsonl")).read_text().count("dev_perplexity")
    assert [shown.count(f"\n{name}: ") for name in ("source", "reference", "translation")] == [3 * n_validations] * 3


def test_a_failure_is_shown_until_it_is_repaired(made: MadeTable2) -> None:
    root = made.store
    watcher = watcher_of(root, "workflow")
    watcher.failed(NAME, [], "no space left on device")
    watcher.__exit__(None, UserError("1 of 1 models failed"), None)
    runs = sent_to(root)
    assert {name: (run.info.status, run.data.tags[FAILURE_TAG]) for name, run in runs.items()} == {
        NAME: ("FAILED", "no space left on device"),
        "table2 embedded": ("FAILED", "1 of 1 models failed"),
    }
    watcher_of(root, "workflow").sync()
    repaired = sent_to(root)[NAME]
    assert repaired.info.status == "FINISHED"
    assert FAILURE_TAG not in repaired.data.tags
