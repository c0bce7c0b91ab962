"""Checks Ray's requirements for starting a cluster here, in milliseconds and without importing Ray."""

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SOCKET_IN_SESSION = "ray/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
"""The longest path of a socket below the temporary folder, with the largest process id."""
PROBE_BYTES = 1_000_000
"""Written to see that a disk has space: an empty folder fits on a full one."""
MAX_SOCKET_BYTES = 103 if sys.platform == "darwin" else 107
"""Linux's limit for the path of a Unix socket, in bytes."""


def obstacles() -> Iterator[tuple[str, str]]:
    """Yields the obstacles to starting Ray here, each with its remedy."""
    if "2" in (os.environ.get("PYTHONOPTIMIZE"), str(sys.flags.optimize)):
        yield "its processes need their docstrings, which PYTHONOPTIMIZE=2 removes", "unset it"
    yield from _folder()
    yield from _token()
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5):
            pass
    except OSError as error:
        yield f"no process can listen on 127.0.0.1 ({error.strerror or error})", "bring up the loopback interface"


def temporary_folder() -> str:
    """Returns the folder of Ray's files."""
    return os.environ.get("RAY_TMPDIR", os.environ.get("TMPDIR", "/tmp") if sys.platform == "linux" else "/tmp")


def _folder() -> Iterator[tuple[str, str]]:
    """Checks the folder of Ray's files: write access, and a path short enough for its sockets."""
    temporary = temporary_folder()
    remedy = "set RAY_TMPDIR to a short, writable path such as /tmp"
    n_bytes = len(os.fsencode(os.path.join(temporary, SOCKET_IN_SESSION)))
    if n_bytes > MAX_SOCKET_BYTES:
        most = MAX_SOCKET_BYTES - n_bytes + len(os.fsencode(temporary))
        yield f"{temporary} is too long a path for Ray's sockets (at most {most} bytes)", remedy
    elif reason := why_not_writable(Path(temporary, "ray")):
        yield f"Ray's folder {temporary} is not writable ({reason})", f"{remedy}, on a disk with space"


def _token() -> Iterator[tuple[str, str]]:
    """Checks that there is a token for the cluster's processes, or that Ray can write one."""
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token" or os.environ.get("RAY_AUTH_TOKEN"):
        return
    if given := os.environ.get("RAY_AUTH_TOKEN_PATH"):
        if not os.access(given, os.R_OK):
            yield f"RAY_AUTH_TOKEN_PATH is {given}, which cannot be read", "correct or unset it"
        return
    token = Path(os.path.expanduser("~"), ".ray", "auth_token")
    reason = "" if os.access(token, os.R_OK) else why_not_writable(token.parent)
    if not token.is_absolute():
        reason = "this user has neither HOME nor an entry in /etc/passwd"
    if reason:
        remedy = "set HOME to a writable folder, or RAY_AUTH_TOKEN to a secret of 32 characters or more"
        yield f"Ray's token file {token} is not writable ({reason})", remedy


def existing(folder: Path) -> Path:
    """Returns a folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def why_not_writable(folder: Path) -> str:
    """Returns why no bytes can be written to a folder, or to the one that it would be created in; empty if they can."""
    try:
        with tempfile.TemporaryDirectory(prefix=".aiayn-", dir=existing(folder)) as folder_of_ours:
            Path(folder_of_ours, "bytes").write_bytes(bytes(PROBE_BYTES))
        return ""
    except OSError as error:
        return error.strerror or str(error)
