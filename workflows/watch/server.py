"""Serves a running workflow as a page that refreshes itself, on this machine alone.

    with serving(look, port=0) as server:
        print(address(server))

The server listens on the loopback interface only, and refuses requests that name another host: so no page from
elsewhere can read it under a name of its own.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from threading import Thread
from urllib.parse import urlsplit

from pipeline.errors import UserError
from workflows.watch.snapshot import Snapshot, as_json

LOOPBACK = "127.0.0.1"
OWN_NAMES = ("127.0.0.1", "localhost", "::1")
PAGE, STATE = "/", "/state.json"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class WatchServer(ThreadingHTTPServer):
    """An HTTP server on the loopback interface that answers with what `look` returns."""

    daemon_threads = True

    def __init__(self, look: Callable[[], Snapshot], port: int) -> None:
        self.look = look
        super().__init__((LOOPBACK, port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    server_version = "aiayn"
    sys_version = ""

    def do_GET(self) -> None:
        """Answers with the page or the state of the run."""
        if urlsplit(f"//{self.headers.get('Host', '')}").hostname not in OWN_NAMES:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", "this page is for the machine it runs on\n")
        elif self.path == PAGE:
            page = resources.files("workflows.watch").joinpath("templates/watch.html").read_text(encoding="utf-8")
            self._answer(HTTPStatus.OK, "text/html", page)
        elif self.path == STATE:
            try:
                self._answer(HTTPStatus.OK, "application/json", json.dumps(as_json(self.server.look())))
            except UserError as error:
                self._answer(HTTPStatus.NOT_FOUND, "application/json", json.dumps({"error": str(error)}))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "not found\n")

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing: a page asks every second."""

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": f"{kind}; charset=utf-8", "Content-Length": len(body)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(look: Callable[[], Snapshot], port: int) -> Iterator[WatchServer]:
    """Serves while the body runs; port 0 takes any that is free. Raises UserError if the port is taken."""
    try:
        server = WatchServer(look, port)
    except OSError as error:
        raise UserError(f"--port {port}: {error.strerror}; choose another, or 0 for any that is free") from None
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def address(server: WatchServer) -> str:
    """Returns the address of the page."""
    return f"http://{LOOPBACK}:{server.server_address[1]}{PAGE}"
