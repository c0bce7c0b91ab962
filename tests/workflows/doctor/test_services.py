"""workflows.doctor.services: a cluster, a folder, MLflow; that answer, that do not, that are not there."""

import fcntl
import os
import socket
from pathlib import Path

import pytest

from workflows.doctor import services
from workflows.tracking.addresses import default_uri
from workflows.tracking.tracker import Tracker


@pytest.fixture
def closed_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.mark.usefixtures("ray_cluster")
def test_a_cluster_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the address given, or in RAY_ADDRESS."""
    import ray

    address = ray.get_runtime_context().gcs_address
    (given,) = services.ray(address)
    assert (given.verdict, given.found) == ("ok", f"{address} answers and accepts this machine")
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert list(services.ray(None)) == [given]


def test_a_cluster_that_does_not(closed_port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It fails with the address; without any, this machine is checked, and Ray's folder there."""
    (found,) = services.ray(f"127.0.0.1:{closed_port}")
    assert found.verdict == "fails"
    assert f"no Ray cluster answers at --address 127.0.0.1:{closed_port}" in found.found
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    ports, folder = services.ray(None)
    assert (ports.name, ports.verdict) == ("ports", "ok")
    assert str(tmp_path) in folder.found
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "none"))
    assert [one.verdict for one in services.ray(None)] == ["ok", "fails"]
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(services, "FULL", 0.0)  # no disk is emptier
    assert [one.verdict for one in services.ray(None)] == ["ok", "warning"]


def test_a_folder_of_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is there, one that can be made, one that cannot; nothing is left in any."""
    (tmp_path / "file").write_text("")
    for root, told in ((tmp_path, "can be written"), (tmp_path / "a" / "b", "can be made")):
        found = {one.name: one for one in services.store(root)}
        assert list(found) == ["store", "file locks", "disk"]
        assert (found["store"].verdict, found["store"].found) == ("ok", f"{root} {told}")
        assert found["file locks"].verdict == "ok"
    (refused,) = services.store(tmp_path / "file" / "runs")
    assert refused.verdict == "fails"
    assert "Not a directory" in refused.found
    monkeypatch.setattr(services, "LITTLE_DISK_BYTES", 10**18)
    assert [one.verdict for one in services.store(tmp_path)] == ["ok", "ok", "warning"]
    monkeypatch.setattr(services, "LEAST_DISK_BYTES", 10**18)
    assert [one.verdict for one in services.store(tmp_path)] == ["ok", "ok", "fails"]
    assert os.listdir(tmp_path) == ["file"]


def test_locks_that_do_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems grant every lock; none of that kind can be mounted by a test."""
    monkeypatch.setattr(fcntl, "flock", lambda *given: None)
    assert [one.verdict for one in services.store(tmp_path)] == ["ok", "fails", "ok"]


def test_mlflow_s_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that a run will make, one of MLflow's own, one that is none."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    found = services.tracking(tmp_path)
    assert (found.verdict, found.found) == ("ok", f"{tmp_path / 'mlflow.db'} will be made by the first run")
    assert not list(tmp_path.iterdir())
    Tracker(default_uri(tmp_path), "table2", tmp_path).open({"aiayn.workflow": "f"}, "table2", {})
    found = services.tracking(tmp_path)
    assert found.verdict == "ok"
    assert found.found.endswith("mlflow.db answers; experiments: 2")  # MLflow's Default is one
    (tmp_path / "mlflow.db").write_text("this is no database" * 100)
    found = services.tracking(tmp_path)
    assert (found.verdict, "not a database" in found.found) == ("fails", True)


def test_a_server_that_does_not_answer(closed_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails at once, and neither user nor password is told, even one with a sign that addresses use."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://somebody:se@cret@127.0.0.1:{closed_port}")
    found = services.tracking(tmp_path)
    assert found.verdict == "fails"
    assert found.found.startswith(f"http://127.0.0.1:{closed_port} does not answer (")
    assert not [word for word in ("somebody", "cret", "se@") if word in f"{found}"]
