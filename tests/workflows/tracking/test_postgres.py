"""Several workflows at once on an MLflow server with PostgreSQL, as a team would run it."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from pipeline.store.artifacts import TrainingRun
from tests.support.arrived import assert_arrived, runs_of
from tests.support.postgres import binaries, postgres
from tests.support.tracking_server import TrackingServer
from tests.workflows.test_reproduce_table2 import TINY

AT_ONCE = 3


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(binaries() is None, reason="PostgreSQL is not installed")
@pytest.mark.skipif(importlib.util.find_spec("psycopg2") is None, reason="psycopg2, of the extra cluster, is missing")
def test_workflows_that_log_at_once(tmp_path: Path) -> None:
    """Everything of each arrives through a server of two processes, under runs of its own, without a warning."""
    command = [sys.executable, "-m", "workflows.reproduce_table2", "--pairs", "en-de", "--models", "base"]
    options = [word for setting in TINY for word in ("--set", setting)]
    store = tmp_path / "runs"
    with postgres() as database, TrackingServer(tmp_path / "server", database, ("--workers", "2")) as server:
        running = [
            subprocess.Popen(
                [*command, "--store", str(store), *options, "--set", f"recipes.base.training.seed={seed}"],
                env={**os.environ, "MLFLOW_TRACKING_URI": server.uri},
                stderr=subprocess.PIPE,
                text=True,
            )
            for seed in range(1, 1 + AT_ONCE)
        ]
        for each in running:
            _, told = each.communicate(timeout=900)
            assert each.returncode == 0, told
            assert "WARNING" not in told
        client, trainings = MlflowClient(server.uri), sorted(store.glob("store/training-*"))
        assert (len(trainings), len(runs_of(client))) == (AT_ONCE, 2 * AT_ONCE)
        for training in trainings:
            assert_arrived(client, store, TrainingRun(training), tmp_path / "arrived" / training.name)
        assert len(client.search_model_versions("name = 'aiayn-en-de-base'")) == AT_ONCE
