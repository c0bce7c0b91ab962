"""A real HTTP server on loopback for a folder, with ranges, that cuts, crawls, refuses and lies as links do."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BLOCK_BYTES = 16_384


class RangeServer(ThreadingHTTPServer):
    """Serves `folder`; the fields may be changed while it runs."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.cut_bytes: int | None = None
        """An answer ends after so many."""
        self.ranges: bool | int = True
        """False: the Range header is ignored; a status: it is answered by that."""
        self.lengths = True
        """Whether the size is told."""
        self.status = 200
        self.pause_s = 0.0
        """Before each block."""
        self.stalls = 0
        """So many answers stop without an end after `cut_bytes`."""
        self.damaged = 0
        """So many answers have a wrong byte."""
        self.asked: list[tuple[str, str | None]] = []
        """Path and Range header of each request."""
        self.at_once = self.most_at_once = 0
        self.counting = threading.Lock()

    @property
    def url(self) -> str:
        """Of the folder."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    """Answers as the server's fields say."""

    server: RangeServer

    def do_GET(self) -> None:
        server, asked = self.server, self.headers["Range"]
        with server.counting:
            server.asked.append((self.path, asked))
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
        try:
            with suppress(ConnectionError):  # the other side has lost patience
                self._answer(asked)
        finally:
            with server.counting:
                server.at_once -= 1

    def _answer(self, asked: str | None) -> None:
        server, path = self.server, self.server.folder / self.path.lstrip("/")
        status = server.status if path.is_file() else 404
        content = bytearray(path.read_bytes()) if status == 200 else bytearray()
        if server.damaged:
            server.damaged -= 1
            content[len(content) // 2] ^= 1
        begin = 0
        if asked and status == 200 and server.ranges is not False:
            begin = int(asked.removeprefix("bytes=").rstrip("-"))
            status = 206 if begin < len(content) else 416
            status = status if server.ranges is True else server.ranges
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        elif status == 416:
            self.send_header("Content-Range", f"bytes */{len(content)}")
        body = content[begin:] if status in (200, 206) else bytearray()
        if server.lengths:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        body = body[: server.cut_bytes]
        for start in range(0, len(body), BLOCK_BYTES):
            time.sleep(server.pause_s)
            self.wfile.write(body[start : start + BLOCK_BYTES])
        if server.stalls:
            server.stalls -= 1
            time.sleep(5)

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[RangeServer]:
    """A running server of a folder."""
    with RangeServer(folder) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()
