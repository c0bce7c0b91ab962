"""The runs of a workflow in MLflow, on a real SQLite store: one for each model that is measured."""

from pathlib import Path

import pytest

from pipeline.store.store import Store
from workflows.engine.dag import to_step
from workflows.experiment import requested
from workflows.profiles.loading import load_profile
from workflows.reproduce_claims import Experiments, experiments
from workflows.tracking.addresses import default_uri
from workflows.tracking.tracker import PARENT_TAG, TRAINING_TAG, Tracker
from workflows.tracking.watcher import MlflowWatcher, Workflow


@pytest.fixture
def claims(tmp_path: Path) -> Experiments:
    """What §5.4 and §6.1 are judged by on WMT14: Tables 2 and 3, and averaging, which share their base's training."""
    profile = load_profile("wmt14")
    request = requested("claims", profile, None, None, str(tmp_path), None, plan=True)
    return experiments(profile, ["5.4", "6.1"], request, (["en-de"], ["base"]), "base", None)


def test_each_measured_model_has_a_run(claims: Experiments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of one training that are measured differently have runs of their own; a failed trial closes its own."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracker = Tracker(default_uri(tmp_path), "claims", tmp_path)
    workflow = Workflow("f", "wmt14", "a command", {}, claims.models)
    watcher = MlflowWatcher(tracker, workflow, Store(tmp_path))
    (parent,) = tracker.runs({"aiayn.workflow": "f"})
    opened = tracker.runs({PARENT_TAG: parent.info.run_id})
    # Averaging's first seed is Table 3's base: the same training, scored on the same set.
    names = {run.info.run_name for run in opened}
    assert names == {"table2 en-de base", "table3 base", "averaging base seed 2", "averaging base seed 3"}
    assert len(opened) == len(names)
    assert len({run.data.tags[TRAINING_TAG] for run in opened}) == 3

    (trial, *_) = claims.trials["averaging"].trials
    watcher.failed([to_step(trial.measured), *trial.evaluation.results])
    status = {run.info.run_name: run.info.status for run in tracker.runs({PARENT_TAG: parent.info.run_id})}
    assert {name for name in names if status[name] != "RUNNING"} == {"table3 base"}
    watcher.close("FAILED")
