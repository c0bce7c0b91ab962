"""Serves a running workflow as a page that refreshes itself, on this machine alone.

with serving(look, port=0) as server:
    print(server.address)
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from importlib import resources
from threading import Thread

from pipeline.errors import UserError
from workflows.console.loopback import HTML, JSON, LoopbackHandler, LoopbackServer
from workflows.watch.snapshot import Snapshot, as_json

PAGE, STATE = "/", "/state.json"


class _Handler(LoopbackHandler):
    server: "WatchServer"

    def do_GET(self) -> None:  # noqa: N802  (http.server calls it so)
        """Answers with the page or the state of the run."""
        if not self.is_local():
            return
        if self.path == PAGE:
            page = resources.files("workflows.watch").joinpath("templates/watch.html").read_text(encoding="utf-8")
            self.send(HTTPStatus.OK, HTML, page)
        elif self.path == STATE:
            try:
                self.send(HTTPStatus.OK, JSON, json.dumps(as_json(self.server.look())))
            except UserError as error:
                self.refuse(HTTPStatus.NOT_FOUND, str(error))
        else:
            self.refuse(HTTPStatus.NOT_FOUND, "there is nothing here; the page is at /")


class WatchServer(LoopbackServer):
    """Answers with what `look` returns. Raises UserError where the port is taken."""

    handler = _Handler

    def __init__(self, look: Callable[[], Snapshot], port: int) -> None:
        self.look = look
        super().__init__(port)


@contextmanager
def serving(look: Callable[[], Snapshot], port: int) -> Iterator[WatchServer]:
    """Serves while the body runs; port 0 takes any that is free. Raises UserError if the port is taken."""
    server = WatchServer(look, port)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
