"""One real tracking server on SQLite, which the tests that lose it share."""

from collections.abc import Iterator

import pytest

from tests.support.tracking_server import TrackingServer


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackingServer]:
    """A server that starts in about 10 s."""
    with TrackingServer(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def server(shared_server: TrackingServer, monkeypatch: pytest.MonkeyPatch) -> TrackingServer:
    """The shared server, which answers before and after each test."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")  # a busy machine answers slowly
    return shared_server
