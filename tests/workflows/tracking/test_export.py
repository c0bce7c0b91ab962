"""workflows.tracking.export: what the store has arrives in MLflow once, and no run stays open."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Run
from mlflow.utils.file_utils import local_file_uri_to_path

from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from tests.support.tiny_profile import TABLE_2, MadeTable2, overrides, run_in_process
from workflows.profiles.loading import load_profile
from workflows.reproduce_table2 import cells_of
from workflows.tracking.addresses import default_uri
from workflows.tracking.export import FAILURE_TAG, PARENT_TAG, Exporter, Workflow, _is_gone
from workflows.tracking.server import Server

BASE = "en-de base"
KILLED = """
import os, signal, sys
from pathlib import Path
from tests.workflows.tracking.test_export import exporter_of
exporter = exporter_of(Path(sys.argv[1]), "workflow", profile="embedded", mirrors=["https://me:secret@mirror/"])
exporter._server.attempt(lambda: exporter.model("en-de base"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def exporter_of(root: Path, fingerprint: str, **params: Any) -> Exporter:
    """Exports a workflow of the cell that the session has made, from a store that may lack it."""
    profile = load_profile(overrides=overrides(TABLE_2))
    models = {f"{cell.pair} {cell.model}": cell for cell in cells_of(profile, ["en-de"], ["base"])}
    workflow = Workflow(fingerprint, "embedded", params, models, is_served=True)
    return Exporter(Server(default_uri(root), "table2", root), workflow, Store(root))


def runs_of(root: Path, condition: str = "tags.`aiayn.workflow` = 'workflow'") -> dict[str, Run]:
    server = Server(default_uri(root), "table2", root)
    return {run.info.run_name: run for run in server.client.search_runs([server.experiment_id], condition)}


def points_of(root: Path, run: Run) -> Counter[tuple[str, int]]:
    """How often MLflow has a point of each metric and update."""
    client = Server(default_uri(root), "table2", root).client
    histories = [client.get_metric_history(run.info.run_id, name) for name in run.data.metrics]
    return Counter((point.key, point.step) for each in histories for point in each)


@pytest.fixture
def made(copy_of_table2: MadeTable2) -> MadeTable2:
    """A finished cell that MLflow does not know."""
    (copy_of_table2.store / "mlflow.db").unlink()
    shutil.rmtree(copy_of_table2.store / "mlartifacts")
    return copy_of_table2


def test_a_driver_of_another_pid_namespace_is_not_gone() -> None:
    """A container with this host's name, say: its pids mean nothing here. A driver of this namespace is judged."""
    code = "import os, socket; from workflows.tracking.export import _namespace; "
    code += "print(socket.gethostname(), os.getpid(), _namespace())"
    said = {}
    for name, prefix in (("here", []), ("contained", ["unshare", "-p", "-f", "--mount-proc"])):
        done = subprocess.run([*prefix, sys.executable, "-c", code], capture_output=True, text=True)
        said[name] = done.stdout.strip()
    if not said["contained"]:
        pytest.skip("only root makes namespaces")
    assert {name: _is_gone(driver) for name, driver in said.items()} == {"here": True, "contained": False}
    assert not _is_gone(f"{socket.gethostname()} 1")  # of an earlier version


def test_two_equal_commands_at_once_are_one_run_and_one_version(made: MadeTable2) -> None:
    code = KILLED.replace("os.kill(os.getpid(), signal.SIGKILL)", "")
    commands = [subprocess.Popen([sys.executable, "-c", code, str(made.store)], stderr=subprocess.PIPE) for _ in "ab"]
    assert [command.communicate()[1] for command in commands] == [b"", b""]
    client = Server(default_uri(made.store), "table2", made.store).client
    assert len(client.search_model_versions()) == 1
    assert len(client.search_runs(["1"])) == 2


def test_an_export_is_continued_after_a_kill_and_repeated(made: MadeTable2) -> None:
    """The curve comes from a process that is killed before the model is scored, the rest from two complete exports.

    Meanwhile, the command of another table ends the runs that the kill has left.
    """
    root = made.store
    (scored,) = [path for path in root.glob("store/scoring-*") if "words" not in (path / "manifest.json").read_text()]
    aside = scored.rename(root / "aside")
    assert run_in_process(sys.executable, "-c", KILLED, str(root)).returncode == -signal.SIGKILL
    half = runs_of(root)
    assert {run.info.status for run in half.values()} == {"RUNNING"}
    assert "loss" in half[BASE].data.metrics
    assert "sacrebleu.test" not in half[BASE].data.metrics
    exporter_of(root, "another").open()
    assert {run.info.status for run in runs_of(root).values()} == {"KILLED"}
    aside.rename(scored)

    table, counts = Artifact(next(root.glob("store/tabulating-*"))), []
    for _ in range(2):
        exporter = exporter_of(root, "workflow", profile="another")
        exporter.model(BASE)
        exporter.table(table, {"bleu": 27.3}, {})
        runs = runs_of(root)
        counts.append([points_of(root, run) for run in runs.values()])
    assert counts[0] == counts[1]
    assert {n for points in counts[0] for n in points.values()} == {1}
    assert {n: run.info.run_id for n, run in runs.items()} == {n: run.info.run_id for n, run in half.items()}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    parent, child = runs["table2 embedded"], runs[BASE]
    lines = [json.loads(line) for line in next(root.glob("store/training-*/metrics.jsonl")).read_text().splitlines()]
    assert {key for key in counts[0][0] + counts[0][1] if key[0] in ("loss", "dev_nll")} == {
        (name, line["update"]) for line in lines for name in ("loss", "dev_nll") if name in line
    }
    assert parent.data.params["profile"] == "embedded"  # MLflow rejects changes
    assert parent.data.params["mirrors"] == "['https://mirror/']"
    assert child.data.tags[PARENT_TAG] == parent.info.run_id
    assert len(child.outputs.model_outputs) == 1
    assert (root / "mlartifacts" / ".complete" / "workflow").exists()


def test_runs_show_their_texts_and_user(made_table2: MadeTable2) -> None:
    runs = runs_of(made_table2.store, "")
    assert runs.keys() == {"table2 embedded", BASE}
    for run in runs.values():
        assert run.info.user_id == run.data.tags["mlflow.user"] != "unknown"
        inputs = {each.dataset.name: each.tags[0].value for each in run.inputs.dataset_inputs}
        assert inputs == {
            "generate en-de": "training",
            "generate en-de dev": "evaluation",
            "generate en-de test": "evaluation",
        }
        folders = [local_file_uri_to_path(json.loads(each.dataset.source)["uri"]) for each in run.inputs.dataset_inputs]
        assert all(Path(folder).is_dir() for folder in folders)


def test_a_failure_is_shown_until_it_is_repaired(made: MadeTable2) -> None:
    root = made.store
    exporter = exporter_of(root, "workflow")
    exporter.model(BASE, "no space left on device")
    exporter.stop("FAILED", "1 of 1 models failed")
    runs = runs_of(root)
    assert {name: (run.info.status, run.data.tags[FAILURE_TAG]) for name, run in runs.items()} == {
        BASE: ("FAILED", "no space left on device"),
        "table2 embedded": ("FAILED", "1 of 1 models failed"),
    }
    exporter_of(root, "workflow").model(BASE)
    repaired = runs_of(root)[BASE]
    assert repaired.info.status == "FINISHED"
    assert FAILURE_TAG not in repaired.data.tags
