"""Secrets in the environment appear in nothing that a workflow writes, prints or sends: planted ones are sought."""

import base64
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from tests.support.tiny_profile import TABLE_2, command_of_table2, run_in_process
from tests.support.tracking_server import TrackingServer

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(900)]
NAMES = ("AWS_SECRET_ACCESS_KEY", "MLFLOW_TRACKING_PASSWORD", "RAY_AUTH_TOKEN", "HF_TOKEN")


@pytest.fixture
def planted() -> dict[str, str]:
    return {name: secrets.token_hex(20) for name in (*NAMES, "in the address")}


@pytest.fixture
def environment(planted: dict[str, str], tmp_path: Path) -> Iterator[dict[str, str]]:
    with TrackingServer(tmp_path / "server") as server:
        address = server.uri.replace("://", f"://somebody:{planted['in the address']}@")
        variables = {name: planted[name] for name in NAMES}
        yield {**os.environ, **variables, "MLFLOW_TRACKING_USERNAME": "somebody", "MLFLOW_TRACKING_URI": address}


def _forms(planted: dict[str, str]) -> dict[str, bytes]:
    """Texts to search for: the values, and their encodings in HTTP's basic authentication."""
    plain = {name: value.encode() for name, value in planted.items()}
    return {**plain, **{f"{name}, encoded": base64.b64encode(b"somebody:" + value) for name, value in plain.items()}}


def _found(text: bytes, planted: dict[str, str]) -> list[str]:
    return [name for name, form in _forms(planted).items() if form in text]


def _found_in(folder: Path, planted: dict[str, str]) -> dict[str, list[str]]:
    holding = {}
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        if names := _found(str(path).encode() + content, planted):
            holding[str(path)] = names
    return holding


def test_a_good_run_and_one_that_fails(environment: dict[str, str], planted: dict[str, str], tmp_path: Path) -> None:
    store = tmp_path / "runs"
    good = run_in_process(*command_of_table2(store), environment=environment)
    assert good.returncode == 0, good.stderr
    bad = run_in_process(*command_of_table2(store, {**TABLE_2, "vocabulary.size": 60_000}), environment=environment)
    assert bad.returncode == 2, bad.stderr
    assert "curves: " in good.stdout
    assert bad.stderr.strip()
    for output in (good.stdout, good.stderr, bad.stdout, bad.stderr):
        assert _found(output.encode(), planted) == []
    runs = MlflowClient(environment["MLFLOW_TRACKING_URI"]).search_runs(["1"])
    assert {"FINISHED", "FAILED"} <= {run.info.status for run in runs}
    assert list((tmp_path / "server" / "artifacts").rglob("table2.md"))
    assert list(store.rglob("report.html"))
    assert _found_in(store, planted) == {}
    assert _found_in(tmp_path / "server", planted) == {}  # its database has parameters, tags and inputs
