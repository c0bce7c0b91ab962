"""The server, asked by a real client: the page, sentences, and nothing for other hosts."""

import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.attention.translated import AttentionTranslator
from pipeline.errors import UserError
from workflows.figures.page import described
from workflows.figures.server import MOST_BYTES, FigureServer

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server(translator: AttentionTranslator) -> Iterator[FigureServer]:
    """A server on a free port, with the tiny model behind it."""
    with FigureServer("<p>ü</p>", lambda sentence: described(translator.translate(sentence)), port=0) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(
    server: FigureServer, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode(), dict(response.getheaders())
    finally:
        connection.close()


def attend(server: FigureServer, sentence: object, **headers: str) -> tuple[int, Any]:
    status, body, _ = ask(server, "POST", "/attend", json.dumps({"sentence": sentence}), {**JSON, **headers})
    return status, json.loads(body)


def test_the_page_is_served(server: FigureServer) -> None:
    """As HTML in UTF-8 that no other page may frame or read, and no cache keeps."""
    status, body, headers = ask(server, "GET", "/")
    assert (status, body) == (200, "<p>ü</p>")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert (headers["X-Frame-Options"], headers["Cache-Control"]) == ("DENY", "no-store")
    assert server.address == f"http://127.0.0.1:{server.server_port}/"
    status, body, headers = ask(server, "HEAD", "/")
    assert (status, body, headers["Content-Length"]) == (200, "", "9")


def test_a_sentence_is_translated(server: FigureServer, translator: AttentionTranslator) -> None:
    """The answer is the model's, several at once too."""
    sentences = ["The lamp is old.", "The <b>man</b> & I sleep.", "Paul sings."]
    found: dict[str, Any] = {}

    def one(sentence: str) -> None:
        found[sentence] = attend(server, sentence, Origin=server.address.rstrip("/"))

    threads = [threading.Thread(target=one, args=(sentence,)) for sentence in sentences]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for sentence in sentences:
        expected = json.loads(json.dumps(described(translator.translate(sentence))))
        assert found[sentence] == (200, expected)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "attacker.example"},
        {"Host": "attacker.example:{port}"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://attacker.example"},
        {"Origin": "null"},
    ],
)
def test_other_hosts_and_pages_get_nothing(server: FigureServer, headers: dict[str, str]) -> None:
    """Neither the page nor a translation: a name made to point here, another port, another page's script."""
    headers = {name: value.replace("{port}", str(server.server_port)) for name, value in headers.items()}
    assert ask(server, "GET", "/", headers=headers)[0] == 403
    status, answer = attend(server, "The lamp is old.", **headers)
    assert status == 403
    assert set(answer) == {"error"}
    assert ask(server, "GET", "/", headers={"Host": f"localhost:{server.server_port}"})[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/attend", '{"sentence": "A"}', {"Content-Type": "text/plain"}, 415),
        ("/attend", "{", JSON, 400),
        ("/attend", "[]", JSON, 400),
        ("/attend", '{"sentence": 3}', JSON, 400),
        ("/attend", '{"sentence": "  "}', JSON, 400),
        ("/attend", json.dumps({"sentence": "dog " * 3000}), JSON, 400),
        ("/attend", b"\xff", JSON, 400),
        ("/attend", "x" * (MOST_BYTES + 1), JSON, 413),
        ("/elsewhere", '{"sentence": "A"}', JSON, 404),
    ],
)
def test_bad_requests_are_told_why(
    server: FigureServer, path: str, body: str | bytes, headers: dict[str, str], status: int
) -> None:
    """With a status and a sentence, and the server goes on."""
    found, answer, _ = ask(server, "POST", path, body, headers)
    assert found == status
    assert len(json.loads(answer)["error"]) > 10
    assert ask(server, "GET", "/")[0] == 200


def test_other_paths_and_methods(server: FigureServer) -> None:
    """There is one page; files of the machine are out of reach."""
    for path in ("/etc/passwd", "/../../etc/passwd", "//etc/passwd", "/attend"):
        assert ask(server, "GET", path)[0] == 404
    assert ask(server, "PUT", "/")[0] == 501


def test_a_port_that_is_taken_is_one_line(server: FigureServer) -> None:
    """It says which, and what to do; the address is this machine's own."""
    assert server.server_address[0] == "127.0.0.1"
    with pytest.raises(UserError, match=f"--port {server.server_port}: .*choose another"):
        FigureServer("", lambda sentence: {}, port=server.server_port)
