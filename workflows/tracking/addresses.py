"""MLflow's address, and how to show it: never with a user or password."""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit


def default_uri(runs: Path) -> str:
    """Returns `MLFLOW_TRACKING_URI` if set, otherwise the address of a SQLite file in the folder `runs`."""
    return os.environ.get("MLFLOW_TRACKING_URI") or sqlite_uri(runs.absolute() / "mlflow.db")


def sqlite_uri(file: Path) -> str:
    """Returns the address of a SQLite file with any name.

    In an address, `?` begins options and `%` an escape. An address with an escape also names the driver, because MLflow
    would otherwise create a folder named like the address.
    """
    escaped = str(file).replace("%", "%25").replace("?", "%3F")
    return f"sqlite:///{file}" if escaped == str(file) else f"sqlite+pysqlite:///{escaped}"


def sqlite_file(uri: str) -> Path | None:
    """Returns the SQLite file at an address; None for any other address."""
    address = re.fullmatch(r"sqlite(?:\+pysqlite)?:///([^?]*)(?:\?.*)?", uri, re.DOTALL)
    return Path(unquote(address[1])).absolute() if address else None


def ui_command(uri: str) -> str:
    """Returns the shell command that shows the runs in a browser on this machine, quoted for pasting."""
    if uri.startswith(("http://", "https://")):
        return f"{shlex.quote(sys.executable)} -m webbrowser {shlex.quote(public_address(uri))}"
    # An address with a password came from the environment; the password must not be printed.
    store = '"$MLFLOW_TRACKING_URI"' if public_address(uri) != uri else shlex.quote(uri)
    return f"{shlex.quote(sys.executable)} -m mlflow ui --backend-store-uri {store} --host 127.0.0.1"


def without_password(text: str) -> str:
    """Removes users and passwords from the addresses in a text."""
    return re.sub(r"(?<=://)[^/\s]*@", "", text)


def public_address(uri: str) -> str:
    """Returns MLflow's address without user and password, even if characters in them should have been escaped."""
    if sqlite_file(uri):
        return uri
    scheme, sign, rest = uri.partition("://")
    return scheme + sign + rest.rpartition("@")[2] if sign else uri


def is_malformed(uri: str) -> bool:
    """Whether an HTTP address lacks a host or has an invalid port."""
    try:
        parts = urlsplit(uri)
        return parts.scheme in ("http", "https") and (not parts.hostname or parts.port == 0)
    except ValueError:
        return True


def reason_of(error: BaseException, uri: str) -> str:
    """Returns the first line of MLflow's error at `uri`, or of the operating system's error behind it.

    If the address has a password, returns only the kind of error, since the text may quote any part of the address.
    """
    for behind in _chain(error):
        error = behind if isinstance(behind, OSError) and (behind.errno or type(behind) is TimeoutError) else error
    kind = type(error).__name__
    return kind if public_address(uri) != uri else without_password((str(error) or kind).strip().split("\n")[0])


def is_timeout(error: BaseException) -> bool:
    """Whether an error of MLflow is a timeout of the server."""
    return any("Timeout" in type(behind).__name__ for behind in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and its causes, including errors among its arguments (urllib3)."""
    while error:
        yield error
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        held = (getattr(error, "reason", None), *error.args)
        error = cause or next((value for value in held if isinstance(value, BaseException)), None)
