"""An S3 server in a separate process, and a proxy that can fail and be slow.

with s3_server() as server, FaultyProxy(server.address) as proxy:
    uri = server.bucket()            # s3://bucket-1, empty
    proxy.fail()
"""

import http.client
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "of no service", "AWS_REGION": "us-east-1"}
START_S = 60
PASSED_ON = ("etag", "last-modified", "content-range")


class S3Server:
    """A running server, which keeps its objects in memory."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._numbers = count(1)

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables for clients."""
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.address}

    def bucket(self) -> str:
        """Creates a bucket and returns its URI."""
        name = f"bucket-{os.getpid()}-{next(self._numbers)}"
        urllib.request.urlopen(urllib.request.Request(f"{self.address}/{name}", method="PUT")).close()
        return f"s3://{name}"


@contextmanager
def s3_server(host: str = "127.0.0.1") -> Iterator[S3Server]:
    """Starts moto's server on a free port, and stops it after the body."""
    with socket.create_server((host, 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", host, "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end_s = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection((host, port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < end_s
                time.sleep(0.1)
        yield S3Server(f"http://{host}:{port}")
    finally:
        process.kill()
        process.wait()


class FaultyProxy:
    """Forwards requests to a server, unless set to fail or to wait first."""

    def __init__(self, behind: str, host: str = "127.0.0.1") -> None:
        self.behind = urlsplit(behind).netloc
        self.fails, self.fail_next, self.delay_s, self.n_failed, self.n_passed = False, 0, 0.0, 0, 0
        self.fail_every = 0
        """One in this many requests fails; 0: none."""
        self.lost_answers = 0
        """The number of next requests that are forwarded, but answered with an error."""
        self.failing_writes_of = ""
        """Part of the names of unwritable objects."""
        self.losing_write_of = ""
        """Part of the name of an object whose next write succeeds without an answer. Later ones fail."""
        self.hides_e_tags = False
        self._server = _Server((host, 0), _Handler)
        self._server.proxy = self
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self.address = f"http://{host}:{self._server.server_address[1]}"

    def __enter__(self) -> "FaultyProxy":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    proxy: FaultyProxy


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _pass_on(self) -> None:
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        time.sleep(proxy.delay_s)
        refused = self.command == "PUT" and proxy.failing_writes_of and proxy.failing_writes_of in self.path
        in_turn = proxy.fail_every and (proxy.n_failed + proxy.n_passed) % proxy.fail_every == 0
        if proxy.fails or refused or proxy.fail_next or in_turn:
            proxy.n_failed += 1
            proxy.fail_next = max(0, proxy.fail_next - 1)
            self._answer(503, {}, b"<Error><Code>SlowDown</Code><Message>Please try again</Message></Error>")
            return
        connection = http.client.HTTPConnection(proxy.behind, timeout=60)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        answer = connection.getresponse()
        content = answer.read()
        headers = {name: value for name, value in answer.getheaders() if name.lower() in PASSED_ON}
        if proxy.hides_e_tags:
            headers = {name: value for name, value in headers.items() if name.lower() != "etag"}
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        proxy.n_passed += 1
        is_lost = self.command == "PUT" and proxy.losing_write_of and proxy.losing_write_of in self.path
        if is_lost:
            proxy.losing_write_of, proxy.failing_writes_of = "", proxy.losing_write_of
        if proxy.lost_answers or is_lost:
            proxy.lost_answers = max(0, proxy.lost_answers - 1)
            status, headers, content = 503, {}, b"<Error><Code>SlowDown</Code></Error>"
        else:
            status = answer.status
        self._answer(status, headers, content, length)
        connection.close()

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes, length: str | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _pass_on

    def log_message(self, format: str, *arguments: Any) -> None:
        """Omits requests from the tests' output."""
