"""What the pages that are served to this machine alone have in common.

    with FigureServer(page, translate, port=0) as server:      # a LoopbackServer, with its LoopbackHandler
        print(server.address)
        server.serve_forever()

The servers listen on 127.0.0.1, and answer only requests that name this machine as their host: a page elsewhere whose
name was made to point here (DNS rebinding) gets nothing. Pages may load nothing from anywhere else.
"""

import json
import logging
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pipeline.errors import UserError

LOOPBACK = "127.0.0.1"
HTML, JSON = "text/html", "application/json"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

logger = logging.getLogger(__name__)


class LoopbackServer(ThreadingHTTPServer):
    """A server on the loopback interface; port 0 is any that is free. Raises UserError where the port is taken."""

    daemon_threads = True
    handler: ClassVar[type["LoopbackHandler"]]

    def __init__(self, port: int) -> None:
        try:
            super().__init__((LOOPBACK, port), self.handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(
                f"--port {port}: cannot listen on {LOOPBACK} ({reason}); choose another, or 0 for any that is free"
            ) from None

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self.server_port}/"


class LoopbackHandler(BaseHTTPRequestHandler):
    """Answers requests from this machine; subclasses say with what."""

    server: LoopbackServer
    server_version, sys_version = "aiayn", ""
    timeout = 30

    def is_local(self) -> bool:
        """Tells whether the request names this machine as its host, and no other page as its origin; else refuses."""
        hosts = {f"{name}:{self.server.server_port}" for name in (LOOPBACK, "localhost")}
        origin = self.headers.get("Origin")
        if self.headers.get("Host") in hosts and (origin is None or urlsplit(origin).netloc in hosts):
            return True
        self.refuse(HTTPStatus.FORBIDDEN, f"this page is for {self.server.address} alone")
        return False

    def refuse(self, status: HTTPStatus, why: str) -> None:
        """Sends {"error": why} and closes the connection."""
        self.close_connection = True  # what else the request holds is not read
        self.send(status, JSON, json.dumps({"error": why}))

    def send(self, status: HTTPStatus, kind: str, text: str) -> None:
        """Sends text of a MIME type; only its headers if that is what was asked for."""
        body = text.encode()
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": f"{kind}; charset=utf-8", "Content-Length": len(body)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs requests, which are shown only where the level is DEBUG."""
        logger.debug(format, *args)
