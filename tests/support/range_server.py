"""A real loopback HTTP server that serves a folder with ranges, and can cut off, stall or reject."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BLOCK_BYTES = 16_384


class RangeServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.cut_bytes: int | None = None
        """Number of bytes after which a response is cut off."""
        self.ranges = True
        """Whether to honour the Range header."""
        self.status = 200
        self.pause_s = 0.0
        """Pause before each block."""
        self.stalls = 0
        """Number of responses that stall after `cut_bytes` without ending."""
        self.asked: list[tuple[str, str | None]] = []
        """The path and the Range header of each request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: RangeServer

    def do_GET(self) -> None:
        server, requested = self.server, self.headers["Range"]
        server.asked.append((self.path, requested))
        with suppress(ConnectionError):  # the client has disconnected
            self._respond(requested)

    def _respond(self, requested: str | None) -> None:
        server, path = self.server, self.server.folder / self.path.lstrip("/")
        status = server.status if path.is_file() else 404
        content = bytearray(path.read_bytes()) if status == 200 else bytearray()
        begin = 0
        if requested and status == 200 and server.ranges:
            begin = int(requested.removeprefix("bytes=").partition("-")[0])  # all requested ranges extend to the end
            status = 206 if begin < len(content) else 416
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        elif status == 416:
            self.send_header("Content-Range", f"bytes */{len(content)}")
        body = content[begin:] if status in (200, 206) else bytearray()
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
        """Logs nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[RangeServer]:
    with RangeServer(folder) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()
