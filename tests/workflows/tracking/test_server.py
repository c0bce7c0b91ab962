"""workflows.tracking.server: a wrong address ends a command at once, a server that is away costs one warning."""

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.store.store import Store
from tests.support.waiting import until
from workflows.tracking.addresses import default_uri
from workflows.tracking.server import Server
from workflows.tracking.watcher import MlflowWatcher, Workflow


@pytest.mark.parametrize(
    "uri",
    [
        "ftp://me:secret@host/x",
        "http://me:secret@",
        "http://me:sec/ret@127.0.0.1:9",
        "https://host:port",
        "http://host:99999",
    ],
)
def test_a_wrong_address_is_reported_at_the_start(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="MLFLOW_TRACKING_URI") as caught:
        Server(uri, "table2", tmp_path).check_address()
    assert not [word for word in ("secret", "sec/", "ret@", "\n") if word in str(caught.value)]


@pytest.mark.parametrize("place", ["127.0.0.1:9", "no-such-host.invalid:5000"])
def test_no_server_at_the_address(place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One warning without user and password. In containers, the name of a stopped server does not resolve either."""
    server = Server(f"http://somebody:se@cret@{place}", "table2", tmp_path)
    server.check_address()
    server.next_request_s = 0.0
    server.attempt(lambda: server.experiment_id)
    server.attempt(lambda: pytest.fail("asked at once"))
    (warning,) = caplog.records
    assert warning.message.startswith(f"MLflow at http://{place} does not answer (")
    assert not [word for word in ("somebody", "cret") if word in caplog.text]


def test_a_server_that_hangs_costs_one_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = Server(f"http://127.0.0.1:{silent.getsockname()[1]}", "table2", tmp_path)
        server.check_address()
        server.attempt(lambda: server.experiment_id)
        silent.settimeout(1)
        connections = []
        with suppress(TimeoutError):
            while True:
                connections.append(silent.accept()[0])
    for connection in connections:
        connection.close()
    assert len(connections) == 1


@pytest.mark.parametrize(
    ("variable", "remedy"),
    [("", "move the file elsewhere; a new one will be filled"), ("X", "correct or unset MLFLOW_TRACKING_URI")],
)
def test_a_damaged_file(
    variable: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mlflow.db").write_text("no database")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", variable and f"sqlite:///{tmp_path}/mlflow.db")
    """It is said once, before Ray starts and before MLflow is imported if the file is the store's."""
    server = Server(default_uri(tmp_path), "table2", tmp_path)
    with pytest.raises(UserError, match=rf"mlflow\.db does not answer \(.*not a database\); {remedy}"):
        server.check_address()
    with pytest.raises(UserError):
        MlflowWatcher(server, Workflow("f", "embedded", {}, {}), Store(tmp_path))
    assert "continuing without it" not in caplog.text


def test_a_command_killed_while_it_makes_the_file_leaves_no_half_of_one(tmp_path: Path) -> None:
    """It is killed as soon as the file exists. Without all tables, MLflow could neither use nor complete it."""
    code = f"Server({default_uri(tmp_path)!r}, 'table2', Path({str(tmp_path)!r})).client"
    code = f"from pathlib import Path; from workflows.tracking.server import Server; {code}"
    with subprocess.Popen([sys.executable, "-c", code]) as made:
        until((tmp_path / "mlflow.db").exists, 60)
        made.kill()
    assert len(Server(default_uri(tmp_path), "table2", tmp_path).client.search_experiments()) == 1


def test_an_error_of_the_disk_is_no_server_that_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A server that keeps files where this machine has no such folder is asked again, and its runs are ended."""
    server, asked = Server("http://127.0.0.1:9", "table2", tmp_path), list[str]()
    server.attempt((tmp_path / "missing" / "file").read_bytes)
    server.attempt(lambda: asked.append("again"))
    assert asked
    assert "lacks data" in caplog.text


def test_a_removed_file_has_nothing(tmp_path: Path) -> None:
    """A folder of any name holds all of MLflow's files."""
    folder = tmp_path / "wh?at #1 per%20cent 50 % 'ü' \"d@t\" [bold]"
    folder.mkdir()
    server = Server(default_uri(folder), "table2", folder)
    server.client.log_text(server.client.create_run(server.experiment_id).info.run_id, "a text", "samples.txt")
    server.mark_complete("workflow")
    assert server.is_complete("workflow")
    assert [path.read_text() for path in folder.rglob("samples.txt")] == ["a text"]
    assert [*tmp_path.iterdir()] == [folder]
    (folder / "mlflow.db").unlink()
    assert not server.is_complete("workflow")


def test_nothing_is_reported_unless_the_user_asks(tmp_path: Path) -> None:
    """Neither MLflow nor Ray looks up its maker's address."""
    code = (
        "from pathlib import Path; from workflows.engine.cluster import set_local_variables; set_local_variables();"
        "from workflows.tracking.server import Server; Server('sqlite://', 'x', Path('x')).client;"
        "from mlflow.telemetry import get_telemetry_client; from ray._common.usage import usage_lib;"
        "print(get_telemetry_client(), usage_lib.usage_stats_enabled())"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTEST_CURRENT_TEST", "CI")}
    for own, wanted in (({}, "None False"), ({"RAY_USAGE_STATS_ENABLED": "1"}, "None True")):
        command, variables = [sys.executable, "-c", code], environment | own
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
        assert done.stdout.split("\n")[-2] == wanted


def test_commands_that_create_one_file_at_once(tmp_path: Path) -> None:
    """MLflow creates and migrates its tables without a lock."""
    code = f"Server({default_uri(tmp_path)!r}, 'table2', Path({str(tmp_path)!r})).client"
    command = [sys.executable, "-c", f"from pathlib import Path; from workflows.tracking.server import Server; {code}"]
    assert [process.wait() for process in [subprocess.Popen(command), subprocess.Popen(command)]] == [0, 0]
