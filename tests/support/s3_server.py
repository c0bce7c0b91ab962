"""An S3 server in this process, and a second address of it where requests fail and are slow.

with s3_server() as server, FaultyProxy(server) as proxy:
    uri = server.bucket()            # s3://bucket-1, empty
    proxy.refuses = lambda request: request.startswith("PUT")
"""

import os
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from threading import Thread
from typing import Any, Self

from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Response

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "of no service", "AWS_REGION": "us-east-1"}


class S3Server:
    def __init__(self, address: str, application: Any) -> None:
        self.address, self.application = address, application
        self._numbers = count(1)

    @property
    def variables(self) -> Mapping[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.address}

    def bucket(self) -> str:
        name = f"bucket-{os.getpid()}-{next(self._numbers)}"
        urllib.request.urlopen(urllib.request.Request(f"{self.address}/{name}", method="PUT")).close()
        return f"s3://{name}"


@contextmanager
def s3_server() -> Iterator[S3Server]:
    from moto.server import DomainDispatcherApplication, create_backend_app  # slow to import

    application = DomainDispatcherApplication(create_backend_app)
    with _serving(application) as address:
        yield S3Server(address, application)


@contextmanager
def _serving(application: Any) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Quiet)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Omits requests from the tests' output."""


def always(_request: str) -> bool:
    return True


def never(_request: str) -> bool:
    return False


def first(number: int) -> Callable[[str], bool]:
    left = iter(range(number))
    return lambda _request: next(left, None) is not None


class FaultyProxy:
    """Another address of a server. Requests are e.g. "PUT /bucket-1/store/a"."""

    def __init__(self, server: S3Server) -> None:
        self._application = server.application
        self._running = _serving(self)
        self.refuses: Callable[[str], bool] = never
        """Whether a request fails without effect."""
        self.loses: Callable[[str], bool] = never
        """Whether a request takes effect, but is answered with an error."""
        self.delay_s, self.n_failed, self.n_passed = 0.0, 0, 0
        self.hides_e_tags = False

    def __enter__(self) -> Self:
        self.address = self._running.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._running.__exit__(*raised)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}".rstrip("?")
        time.sleep(self.delay_s)
        answer = Response("<Error><Code>SlowDown</Code><Message>Please try again</Message></Error>", 503)
        if self.refuses(request):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            self.n_failed += 1
        else:
            passed = Response.from_app(self._application, environ, buffered=True)
            self.n_passed += 1
            answer = answer if self.loses(request) else passed
            if self.hides_e_tags:
                answer.headers.pop("ETag", None)
        return answer(environ, start_response)
