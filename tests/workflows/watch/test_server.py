"""The page of a run: served on the loopback interface alone, to requests that name it, with the state as JSON."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import psutil
import pytest

from pipeline.errors import UserError
from pipeline.store.store import LocalStore
from workflows.console.loopback import LOOPBACK
from workflows.watch.server import WatchServer, serving
from workflows.watch.snapshot import record_of, take


@pytest.fixture
def server(store: LocalStore, running: Callable[..., Any]) -> Iterator[WatchServer]:
    """Serves a running run."""
    with running(), serving(lambda: take(store, record_of(store, None)), 0) as made:
        yield made


@contextmanager
def answer(server: WatchServer, path: str, host: str = "") -> Iterator[tuple[HTTPResponse, str]]:
    """Asks for a path, with another name of the host if one is given."""
    connection = HTTPConnection(LOOPBACK, server.server_address[1], timeout=5)
    connection.request("GET", path, headers={"Host": host} if host else {})
    response = connection.getresponse()
    yield response, response.read().decode()
    connection.close()


def test_the_page_asks_only_its_own_server(server: WatchServer) -> None:
    """The page loads nothing but the state; its policy forbids the rest, and no site may frame or read it."""
    with answer(server, "/") as (response, page):
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/html; charset=utf-8"
        policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert page.count("fetch(") == page.count('fetch("/state.json")') == 1
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "innerHTML" not in page


def test_the_state_is_that_of_now(server: WatchServer) -> None:
    """The JSON has the stages and curves, and is not to be kept."""
    with answer(server, "/state.json") as (response, text):
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["Access-Control-Allow-Origin"] is None
    state = json.loads(text)
    assert state["state"] == "running"
    assert [stage["state"] for stage in state["stages"]].count("waiting") == 3
    assert {curve["figure"] for curve in state["curves"]} == {"loss", "dev_perplexity"}


@pytest.mark.parametrize(
    "host", ["example.org", "example.org:80", "127.0.0.1.example.org", "192.0.2.1", "[::2]", "127.0.0.1:1"]
)
def test_other_hosts_are_refused(server: WatchServer, host: str) -> None:
    """A page elsewhere whose name leads here would send its own name."""
    for path in ("/", "/state.json"):
        with answer(server, path, host) as (response, text):
            assert response.status == 403
            assert "stages" not in text


def test_own_names_are_served_and_other_paths_are_not(server: WatchServer) -> None:
    """By number or name, with the port; no file of this machine can be asked for."""
    for host in ("localhost", "127.0.0.1"):
        with answer(server, "/state.json", f"{host}:{server.server_port}") as (response, _):
            assert response.status == 200
    for path in ("/../pyproject.toml", "//etc/passwd", "/state.json/x", "/favicon.ico"):
        with answer(server, path) as (response, _):
            assert response.status == 404


def test_only_the_loopback_interface_listens(server: WatchServer) -> None:
    """The system says so."""
    port = server.server_address[1]
    sockets = [one for one in psutil.Process().net_connections("tcp") if one.status == "LISTEN"]
    assert [one.laddr.ip for one in sockets if one.laddr.port == port] == [LOOPBACK]
    assert server.address == f"http://127.0.0.1:{port}/"


def test_a_port_that_is_taken(store: LocalStore) -> None:
    """One line says so."""
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--port {port}: .*choose another"), serving(lambda: None, port):  # type: ignore[arg-type,return-value]
            pass
