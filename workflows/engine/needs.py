"""Checks Ray's requirements for starting a cluster here, in milliseconds and without Ray."""

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SOCKET_IN_SESSION = "ray/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
"""The longest name of a socket below the folder of temporary files, with the largest process id there is."""
MAX_SOCKET_BYTES = 103 if sys.platform == "darwin" else 107
"""The kernel's limit for the path of a Unix socket."""


def obstacles() -> Iterator[tuple[str, str]]:
    """Yields the obstacles to starting Ray here, each with its remedy."""
    yield from _folder()
    yield from _token()
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5):
            pass
    except OSError as error:
        yield f"no process can listen on 127.0.0.1 ({error.strerror or error})", "bring up the loopback interface"


def _folder() -> Iterator[tuple[str, str]]:
    """Checks the folder of Ray's files, whose sockets have long names."""
    default = os.environ.get("TMPDIR", "/tmp") if sys.platform == "linux" else "/tmp"
    temporary = os.environ.get("RAY_TMPDIR", default)
    remedy = "set RAY_TMPDIR to a short path that can be written, such as /tmp"
    n_bytes = len(os.fsencode(os.path.join(temporary, SOCKET_IN_SESSION)))
    if n_bytes > MAX_SOCKET_BYTES:
        most = MAX_SOCKET_BYTES - n_bytes + len(os.fsencode(temporary))
        yield f"{temporary} is too long a path for Ray's sockets, for which it may have {most} bytes", remedy
    elif reason := _why_not_writable(Path(temporary, "ray")):
        yield f"Ray keeps its files in {temporary}, which cannot be written ({reason})", remedy


def _token() -> Iterator[tuple[str, str]]:
    """Checks that there is a token, which Ray demands of all processes of a cluster, or that one can be written."""
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token" or os.environ.get("RAY_AUTH_TOKEN"):
        return
    if given := os.environ.get("RAY_AUTH_TOKEN_PATH"):
        if not os.access(given, os.R_OK):
            yield f"RAY_AUTH_TOKEN_PATH names {given}, which cannot be read", "correct it or unset it"
        return
    token = Path(os.path.expanduser("~"), ".ray", "auth_token")
    reason = "" if os.access(token, os.R_OK) else _why_not_writable(token.parent)
    if reason:
        remedy = "set HOME to a folder that can be written, or RAY_AUTH_TOKEN to a secret of 32 characters or more"
        yield f"Ray keeps a token in {token}, which cannot be written ({reason})", remedy


def _why_not_writable(folder: Path) -> str:
    """Returns why nothing can be written in a folder, or in the place where it would be made; empty if it can."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".aiayn-", dir=there):
            return ""
    except OSError as error:
        return error.strerror or str(error)
