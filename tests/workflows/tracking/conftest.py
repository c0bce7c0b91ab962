"""A real tracking server on SQLite, shared by the tests that lose it."""

from collections.abc import Iterator

import pytest

from tests.support.tracking_server import TrackingServer


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackingServer]:
    """A server; it takes about 10 s to start."""
    with TrackingServer(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def server(shared_server: TrackingServer, monkeypatch: pytest.MonkeyPatch) -> TrackingServer:
    """The shared server, which responds before and after each test."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")  # a busy machine is slow
    return shared_server
