"""Serves the page to this machine alone, and translates the sentences typed into it.

    with FigureServer(page, translator, port=0) as server:
        print(server.address)
        server.serve_forever()

A sentence must come as JSON from the page itself.
"""

import json
import logging
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from pipeline.errors import UserError
from workflows.console.loopback import HTML, JSON, LoopbackHandler, LoopbackServer

logger = logging.getLogger(__name__)

DEFAULT_PORT = 8765
MOST_BYTES = 16_384
"""The longest request that is read."""
Translate = Callable[[str], dict[str, Any]]
"""Returns what the page draws of a sentence; raises UserError where it cannot be translated."""


class _Handler(LoopbackHandler):
    server: "FigureServer"

    def do_GET(self) -> None:  # noqa: N802  (http.server calls it so)
        """Sends the page."""
        if not self.is_local():
            return
        if urlsplit(self.path).path != "/":
            self.refuse(HTTPStatus.NOT_FOUND, "there is nothing here; the page is at /")
            return
        self.send(HTTPStatus.OK, HTML, self.server.page)

    def do_HEAD(self) -> None:  # noqa: N802  (http.server calls it so)
        """Sends the page's headers."""
        self.do_GET()

    def do_POST(self) -> None:  # noqa: N802  (http.server calls it so)
        """Translates {"sentence": "..."}."""
        if not self.is_local():
            return
        if urlsplit(self.path).path != "/attend":
            self.refuse(HTTPStatus.NOT_FOUND, "sentences are sent to /attend")
        elif self.headers.get_content_type() != JSON:
            self.refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {JSON}")
        elif not (length := self.headers.get("Content-Length", "")).isdecimal() or int(length) > MOST_BYTES:
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"send at most {MOST_BYTES} bytes, and say how many")
        else:
            self._translate(self.rfile.read(int(length)))

    def _translate(self, body: bytes) -> None:
        try:
            sentence = json.loads(body)["sentence"]
            if not isinstance(sentence, str):
                raise TypeError
        except (ValueError, TypeError, KeyError):
            self.refuse(HTTPStatus.BAD_REQUEST, 'send {"sentence": "..."}')
            return
        try:
            answer = self.server.attend(sentence)
        except UserError as error:
            self.refuse(HTTPStatus.BAD_REQUEST, str(error))
        except Exception:
            logger.exception("a sentence could not be translated")
            self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "the sentence could not be translated; see the terminal")
        else:
            self.send(HTTPStatus.OK, JSON, json.dumps(answer))


class FigureServer(LoopbackServer):
    """Serves a page, and what `translate` returns of a sentence. Raises UserError where the port is taken."""

    handler = _Handler

    def __init__(self, page: str, translate: Translate, port: int = DEFAULT_PORT) -> None:
        self.page, self._translate, self._lock = page, translate, threading.Lock()
        super().__init__(port)

    def attend(self, sentence: str) -> dict[str, Any]:
        """Translates a sentence, one at a time."""
        with self._lock:
            return self._translate(sentence)
