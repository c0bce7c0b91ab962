"""Serves the page to this machine alone, and translates the sentences typed into it.

    with FigureServer(page, translator, port=0) as server:
        print(server.address)
        server.serve_forever()

It listens on 127.0.0.1, and answers only requests that name this machine as their host: a page elsewhere whose name was
made to point here (DNS rebinding) gets nothing. A sentence must come as JSON from the page itself.
"""

import json
import logging
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from pipeline.errors import UserError

logger = logging.getLogger(__name__)

HOST, DEFAULT_PORT = "127.0.0.1", 8765
MOST_BYTES = 16_384
"""The longest request that is read."""
Translate = Callable[[str], dict[str, Any]]
"""Returns what the page draws of a sentence; raises UserError where it cannot be translated."""


class FigureServer(ThreadingHTTPServer):
    """The server. Raises UserError where the port is taken."""

    daemon_threads = True

    def __init__(self, page: str, translate: Translate, port: int = DEFAULT_PORT) -> None:
        self.page, self._translate, self._lock = page.encode(), translate, threading.Lock()
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"--port {port}: cannot listen on {HOST} ({reason}); choose another, or 0") from None

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_port}/"

    def attend(self, sentence: str) -> dict[str, Any]:
        """Translates a sentence, one at a time."""
        with self._lock:
            return self._translate(sentence)


class _Handler(BaseHTTPRequestHandler):
    server: FigureServer
    server_version, sys_version = "aiayn", ""
    timeout = 30

    def do_GET(self) -> None:
        """Sends the page."""
        if not self._is_local():
            return
        if urlsplit(self.path).path != "/":
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here; the page is at /")
            return
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page)

    def do_HEAD(self) -> None:
        """Sends the page's headers."""
        self.do_GET()

    def do_POST(self) -> None:
        """Translates {"sentence": "..."}."""
        if not self._is_local():
            return
        if urlsplit(self.path).path != "/attend":
            self._refuse(HTTPStatus.NOT_FOUND, "sentences are sent to /attend")
        elif self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send application/json")
        elif not (length := self.headers.get("Content-Length", "")).isdecimal() or int(length) > MOST_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"send at most {MOST_BYTES} bytes, and say how many")
        else:
            self._translate(self.rfile.read(int(length)))

    def _translate(self, body: bytes) -> None:
        try:
            sentence = json.loads(body)["sentence"]
            if not isinstance(sentence, str):
                raise TypeError
        except (ValueError, TypeError, KeyError):
            self._refuse(HTTPStatus.BAD_REQUEST, 'send {"sentence": "..."}')
            return
        try:
            answer = self.server.attend(sentence)
        except UserError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except Exception:
            logger.exception("a sentence could not be translated")
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "the sentence could not be translated; see the terminal")
        else:
            self._send(HTTPStatus.OK, "application/json", json.dumps(answer).encode())

    def _is_local(self) -> bool:
        """Tells whether the request names this machine as its host, and no other page as its origin."""
        port = self.server.server_port
        hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        origin = self.headers.get("Origin")
        if self.headers.get("Host") in hosts and (origin is None or urlsplit(origin).netloc in hosts):
            return True
        self._refuse(HTTPStatus.FORBIDDEN, f"this page is for http://{HOST}:{port}/ alone")
        return False

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True  # what else the request holds is not read
        self._send(status, "application/json", json.dumps({"error": why}).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs requests, which are shown only where the level is DEBUG."""
        logger.debug(format, *args)
