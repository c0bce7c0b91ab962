"""pipeline.download against a real HTTP server on loopback that cuts, refuses and lies as links do."""

import hashlib
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipeline.download import fetch
from pipeline.errors import UserError

CONTENT = random.Random(1).randbytes(300_000)


class Server(ThreadingHTTPServer):
    """Serves CONTENT; `cut_bytes` ends an answer early, `ranges` False ignores the Range header."""

    cut_bytes: int | None = None
    ranges = True
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file"


class Handler(BaseHTTPRequestHandler):
    """Answers as the server's fields say."""

    server: Server

    def do_GET(self) -> None:
        asked = self.headers["Range"]
        self.server.asked.append(asked)
        begin = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.ranges else 0
        self.send_response(206 if begin and self.server.status == 200 else self.server.status)
        self.send_header("Content-Length", str(len(CONTENT) - begin))
        self.end_headers()
        end = len(CONTENT) if self.server.cut_bytes is None else begin + self.server.cut_bytes
        self.wfile.write(CONTENT[begin:end])

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A running server."""
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def get(url: str, path: Path, sha256: str = hashlib.sha256(CONTENT).hexdigest(), attempts: int = 3) -> None:
    """`fetch` of CONTENT without long pauses."""
    fetch(
        url,
        path,
        size_bytes=len(CONTENT),
        sha256=sha256,
        otherwise="pass --data DIR",
        attempts=attempts,
        pause_s=0.001,
        timeout_s=5,
    )


def test_a_whole_file_arrives(server: Server, tmp_path: Path) -> None:
    """One request, and no partial file stays."""
    get(server.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [None]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_cut_download_is_continued_where_it_broke(server: Server, tmp_path: Path) -> None:
    """A link that dies again and again is no failure as long as each attempt brings something."""
    server.cut_bytes = 70_000
    get(server.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=70000-", "bytes=140000-", "bytes=210000-", "bytes=280000-"]


def test_the_partial_file_of_an_earlier_run_is_continued(server: Server, tmp_path: Path) -> None:
    """Nothing that arrived is fetched twice."""
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    get(server.url, tmp_path / "file")
    assert server.asked == ["bytes=1000-"]
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_server_without_ranges_starts_again(server: Server, tmp_path: Path) -> None:
    """Its whole answer replaces the partial file instead of being appended."""
    server.ranges = False
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    get(server.url, tmp_path / "file")
    assert server.asked == ["bytes=1000-"]
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_wrong_partial_file_is_thrown_away(server: Server, tmp_path: Path) -> None:
    """What was left from another file does not spoil the download for good."""
    (tmp_path / "file.part").write_bytes(b"x" * 1000)
    get(server.url, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_wrong_hash_leaves_no_file(server: Server, tmp_path: Path) -> None:
    """Content that is not the published one is never used, and asking again would not help."""
    with pytest.raises(UserError, match=r"not the file expected .*; pass --data DIR"):
        get(server.url, tmp_path / "file", sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []
    assert server.asked == [None]


def test_a_missing_page_is_told_at_once(server: Server, tmp_path: Path) -> None:
    """404 is not retried; 503 is."""
    server.status = 404
    with pytest.raises(UserError, match=r"HTTP 404 Not Found; pass --data DIR"):
        get(server.url, tmp_path / "file")
    assert len(server.asked) == 1
    server.status = 503
    with pytest.raises(UserError, match="HTTP 503"):
        get(server.url, tmp_path / "file")
    assert len(server.asked) == 1 + 3


def test_no_server_is_one_clear_line(tmp_path: Path) -> None:
    """Without a network the advice is what a user reads."""
    with Server() as gone:
        url = gone.url
    with pytest.raises(UserError, match=f"cannot download {url}: .*refused; pass --data DIR"):
        get(url, tmp_path / "file")


def test_other_schemes_are_refused(tmp_path: Path) -> None:
    """A URL cannot make the program read local files."""
    with pytest.raises(UserError, match="neither http"):
        get((tmp_path / "x").as_uri(), tmp_path / "file")
