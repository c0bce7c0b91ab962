"""Joining a Ray cluster by address, with and without its token.

Run as a script, this file is a driver: `python tests/workflows/engine/test_cluster_address.py --address HOST:PORT`.
"""

import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import psutil
import pytest
import ray
import typer

from pipeline.store.store import Store
from tests.chaos.hosts import can_make_hosts
from tests.support.waiting import until
from workflows.cli.console import run_app
from workflows.engine.cluster import OUT_OF_MEMORY, check_shared, cluster

pytestmark = pytest.mark.ray

START_S, STOP_S = 90, 30
JOIN_S = 120
"""Ends a driver that hangs. A server that never answers is given up after 12 s."""
RAY = Path(sys.executable).with_name("ray")

app = typer.Typer()


@app.command()
def drive(address: Annotated[str | None, typer.Option()] = None, store: Path | None = None) -> None:
    """Joins, checks a store, and runs a task with this process's object and the variables for tasks of its own."""
    with cluster(address):
        if store:
            check_shared(Store(store), address)
        add: Any = ray.remote(lambda references: sum(ray.get(references)) * (os.environ[OUT_OF_MEMORY[0]] == "0"))
        print(ray.get(add.remote([ray.put(40), ray.put(2)])))


def _environment(home: Path, **variables: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return inherited | {"HOME": str(home)} | variables


def _home(folder: Path, token: str) -> Path:
    (folder / ".ray").mkdir(parents=True)
    (folder / ".ray" / "auth_token").write_text(token)
    return folder


@contextmanager
def _ray_start(environment: Mapping[str, str], address: str = "", within: Sequence[str] = ()) -> Iterator[Path]:
    """Starts a head node, or a node of the cluster at `address`; cleans up. Yields the file that it prints to."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # pytest's temporary paths are too long for sockets
        printed = Path(folder) / "printed"
        head = ["--head", "--port=0", f"--temp-dir={folder}", "--include-dashboard=False"]
        command = [*within, RAY, "start", "--block", *([f"--address={address}"] if address else head)]
        command += ["--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats"]
        with printed.open("w") as output:
            head = psutil.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield printed
        finally:
            processes = [head, *head.children(recursive=True)]
            head.terminate()
            _, alive = psutil.wait_procs(processes, timeout=STOP_S)
            for process in alive:
                process.kill()
            psutil.wait_procs(alive, timeout=STOP_S)


def _wait_for(pattern: str, printed: Path) -> re.Match[str]:
    return until(lambda: re.search(pattern, printed.read_text()), START_S, printed.read_text)


@pytest.fixture(scope="module")
def token() -> str:
    return secrets.token_hex(32)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory, token: str) -> Iterator[dict[str, str]]:
    """The addresses of a head node that demands a token, the default if it has one, and of an open head node."""
    home = _home(tmp_path_factory.mktemp("head"), token)
    with ExitStack() as stack:
        printed = {
            "token": stack.enter_context(_ray_start(_environment(home))),
            "nothing": stack.enter_context(_ray_start(_environment(home, RAY_AUTH_MODE="disabled"))),
        }
        yield {demanded: _wait_for(r"ray start --address='(\S+)'", file)[1] for demanded, file in printed.items()}


def _driver(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=JOIN_S)


def _assert_one_line(done: subprocess.CompletedProcess[str], message: str) -> None:
    assert message in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.returncode == 2


def test_a_machine_that_has_the_token_joins(clusters: dict[str, str], token: str, tmp_path: Path) -> None:
    """By HOST:PORT, with the token in its file or the environment; a job, too. A new token is in a private folder."""
    home, sends = _home(tmp_path / "home", token), {"RAY_AUTH_MODE": "token"}
    for environment, arguments in (
        (_environment(home, **sends), ["--address", clusters["token"]]),
        (_environment(tmp_path, **sends, RAY_AUTH_TOKEN=token, RAY_ADDRESS=clusters["token"]), []),
        (_environment(home), ["--address", clusters["nothing"]]),
        (_environment(home, RAY_JOB_CONFIG_JSON_ENV_VAR="{}"), ["--address", clusters["nothing"]]),
        (_environment(tmp_path / "new"), []),
    ):
        Path(environment["HOME"]).mkdir(exist_ok=True)
        done = _driver(environment, *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")
    assert (tmp_path / "new/.ray/auth_token").is_file()
    assert (tmp_path / "new/.ray").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "wants a token; set RAY_AUTH_MODE=token"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/no/token"}, "none in /no/token; copy the output"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "wrong"}, "wants a token"),
    ],
)
def test_a_refusal_is_a_line(variables: dict[str, str], message: str, clusters: dict[str, str], tmp_path: Path) -> None:
    _assert_one_line(_driver(_environment(tmp_path, **variables), "--address", clusters["token"]), message)


def test_a_server_that_is_not_a_ray_cluster_gets_a_one_line_error(clusters: dict[str, str], tmp_path: Path) -> None:
    host, _ = clusters["token"].split(":")  # not localhost, which Ray would treat as this address
    with socket.create_server((host, 0)) as server:
        done = _driver(_environment(tmp_path), "--address", f"{host}:{server.getsockname()[1]}")
    _assert_one_line(done, "no Ray cluster answers")
    assert "Timed out" in done.stderr


@pytest.mark.skipif(not can_make_hosts(), reason="needs Linux, root and iproute2")
def test_a_node_that_does_not_share_the_store_is_named(clusters: dict[str, str], tmp_path: Path) -> None:
    """Before anything runs: another disk is mounted there, or nothing may be written."""
    environment, address, store = _environment(tmp_path), clusters["nothing"], tmp_path / "runs"
    store.mkdir()
    arguments = ("--address", address, "--store", str(store))
    assert _driver(environment, *arguments).stdout == "42\n"
    for options in ("-t tmpfs none", f"--bind -o ro {store}"):
        mounted = ["unshare", "-m", "sh", "-c", f'mount {options} {store} && exec "$0" "$@"']
        with _ray_start(environment, address, mounted) as printed:
            _wait_for(r"Ray runtime started", printed)
            _assert_one_line(_driver(environment, *arguments), f"--store {store}: node ")
    assert list(store.rglob("probe*")) == []


if __name__ == "__main__":
    run_app(app, "join")
