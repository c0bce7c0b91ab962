"""pipeline.corpora.download against a real loopback HTTP server that disconnects, rejects and corrupts."""

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.corpora import download
from pipeline.corpora.download import fetch
from pipeline.errors import UserError
from tests.support.range_server import RangeServer, serving

CONTENT = random.Random(1).randbytes(300_000)
SHA256 = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RangeServer]:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "file").write_bytes(CONTENT)
    with serving(tmp_path / "served") as server:
        yield server


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in (("RETRIES", 2), ("PAUSE_S", 0.001), ("TIMEOUT_S", 1.5)):
        monkeypatch.setattr(download, name, value)
    (tmp_path / "here").mkdir()
    return tmp_path / "here" / "file"


def get(
    server: RangeServer | str,
    target: Path,
    *mirrors: str,
    size_bytes: int | None = len(CONTENT),
    checksum: str | None = SHA256,
) -> None:
    url = server if isinstance(server, str) else f"{server.url}/file"
    known = {"size_bytes": size_bytes, "checksum": checksum, "advice": "pass --data DIR"}
    fetch([url, *mirrors], target, **known)


def ranges(server: RangeServer) -> list[str | None]:
    return [header for _, header in server.asked]


@pytest.mark.parametrize("known", [True, False])
def test_a_cut_download_is_continued_where_it_broke(server: RangeServer, target: Path, known: bool) -> None:
    """A connection that keeps failing is not an error as long as each attempt brings new bytes.

    If no size is published, the server's own size shows that bytes are missing.
    """
    server.cut_bytes = 70_000
    get(server, target, **({} if known else {"size_bytes": None, "checksum": None}))
    assert target.read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=70000-", "bytes=140000-", "bytes=210000-", "bytes=280000-"]


def test_a_link_that_falls_silent_is_dropped_and_continued(server: RangeServer, target: Path) -> None:
    server.cut_bytes, server.stalls = 200_000, 1
    get(server, target)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=200000-"]


def test_a_link_that_brings_nothing_is_given_up(server: RangeServer, target: Path) -> None:
    """The download fails after as many retries as for an unanswered request. Received bytes are kept."""
    server.cut_bytes = 0
    target.with_name("file.part").write_bytes(CONTENT[:1000])
    with pytest.raises(UserError, match=r"Interrupted; pass --data DIR"):
        get(server, target)
    assert ranges(server) == ["bytes=1000-"] * 3
    assert target.with_name("file.part").read_bytes() == CONTENT[:1000]


@pytest.mark.parametrize("known", [True, False])
def test_the_partial_file_of_an_earlier_run_is_continued(server: RangeServer, target: Path, known: bool) -> None:
    """Nothing is downloaded twice, even if only the last step is missing and the size is published."""
    changes = {} if known else {"size_bytes": None, "checksum": None}
    part = target.with_name("file.part")
    part.write_bytes(CONTENT[:1000])
    get(server, target, **changes)
    assert ranges(server) == ["bytes=1000-"]
    assert target.read_bytes() == CONTENT
    target.rename(part)
    get(server, target, **changes)
    assert target.read_bytes() == CONTENT
    assert ranges(server)[1:] == ([] if known else ["bytes=300000-", None])


def test_a_server_without_ranges_starts_again(server: RangeServer, target: Path) -> None:
    server.ranges = False
    target.with_name("file.part").write_bytes(CONTENT[:1000])
    get(server, target)
    assert ranges(server) == ["bytes=1000-", None]
    assert target.read_bytes() == CONTENT
    server.cut_bytes = 70_000
    with pytest.raises(UserError, match="Interrupted"):
        get(server, target.with_name("other"))


@pytest.mark.parametrize(
    ("status", "expected", "message", "n_requests"),
    [
        # Other content than the published one is downloaded once more, and never used.
        (200, {"checksum": "sha256:" + 64 * "0"}, r"not the expected file \(sha256 .* instead of 0{64}\); pass", 2),
        # A login page in place of gigabytes is recognized by its length, before the content arrives.
        (200, {"size_bytes": 500_000}, "300000 bytes instead of 500000", 1),
        (404, {}, "HTTP 404 Not Found; pass --data DIR", 1),
        (503, {}, "HTTP 503", 3),  # may be gone a moment later
    ],
)
def test_another_file_is_reported_and_leaves_nothing(
    server: RangeServer, target: Path, status: int, expected: dict[str, Any], message: str, n_requests: int
) -> None:
    server.status = status
    with pytest.raises(UserError, match=message):
        get(server, target, **expected)
    assert list(target.parent.iterdir()) == []
    assert len(server.asked) == n_requests


def test_a_mirror_goes_on_where_the_first_server_stopped(server: RangeServer, target: Path, tmp_path: Path) -> None:
    """Bytes received from one server are kept. If all fail, each is listed with its reason."""
    with serving(tmp_path / "served") as mirror:
        server.status = 404
        target.with_name("file.part").write_bytes(CONTENT[:1000])
        get(server, target, f"{mirror.url}/file")
        assert ranges(mirror) == ["bytes=1000-"]
        assert target.read_bytes() == CONTENT
        mirror.status = 403
        with pytest.raises(UserError, match=rf"{server.url}/file: HTTP 404 .*; {mirror.url}/file: HTTP 403 .*--data"):
            get(server, target.with_name("other"), f"{mirror.url}/file")


def test_what_is_no_server_is_refused(target: Path) -> None:
    with pytest.raises(UserError, match=r"http://127.0.0.1:9/x: Connection refused; pass --data DIR"):
        get("http://127.0.0.1:9/x", target)
    with pytest.raises(UserError, match="neither http"):
        get((target.parent / "x").as_uri(), target)
    with pytest.raises(UserError, match=r"127\.0\.0\.1:80a/x: .*port"):
        get("http://127.0.0.1:80a/x", target)
