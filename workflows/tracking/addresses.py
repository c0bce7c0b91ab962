"""Where MLflow is, and how its address is shown: never with a user or a password."""

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

    In an address `?` begins options and `%` an escape. One that has an escape names the driver, too: where it does not,
    MLflow makes a folder of the address as it is written.
    """
    escaped = str(file).replace("%", "%25").replace("?", "%3F")
    return f"sqlite:///{file}" if escaped == str(file) else f"sqlite+pysqlite:///{escaped}"


def sqlite_file(uri: str) -> Path | None:
    """Returns the SQLite file at an address; None for the address of anything else."""
    address = re.fullmatch(r"sqlite(?:\+pysqlite)?:///([^?]*)(?:\?.*)?", uri, re.DOTALL)
    return Path(unquote(address[1])).absolute() if address else None


def ui_command(uri: str) -> str:
    """Returns the shell command that shows the runs in a browser on this machine, ready to be pasted."""
    if uri.startswith(("http://", "https://")):
        return f"{shlex.quote(sys.executable)} -m webbrowser {shlex.quote(public_address(uri))}"
    # Do not print a database's password: an address with one came from the environment.
    store = '"$MLFLOW_TRACKING_URI"' if public_address(uri) != uri else shlex.quote(uri)
    return f"{shlex.quote(sys.executable)} -m mlflow ui --backend-store-uri {store} --host 127.0.0.1"


def without_password(text: str) -> str:
    """Returns a text without the users and passwords of the addresses in it."""
    return re.sub(r"(?<=://)[^/\s]*@", "", text)


def public_address(uri: str) -> str:
    """Returns the address of MLflow without user and password, even where a sign in them ought to be escaped."""
    if sqlite_file(uri):
        return uri
    scheme, sign, rest = uri.partition("://")
    return scheme + sign + rest.rpartition("@")[2] if sign else uri


def is_malformed(uri: str) -> bool:
    """Returns whether an address over HTTP names no host, or a port that is none."""
    try:
        parts = urlsplit(uri)
        return parts.scheme in ("http", "https") and (not parts.hostname or parts.port == 0)
    except ValueError:
        return True


def reason_of(error: BaseException, uri: str) -> str:
    """Returns the first line of an error of MLflow at `uri`, or of what the system says.

    Of an address with a password it is only the kind of error, since the text may quote any part of the address.
    """
    for behind in _chain(error):
        error = behind if isinstance(behind, OSError) and (behind.errno or type(behind) is TimeoutError) else error
    kind = type(error).__name__
    return kind if public_address(uri) != uri else without_password((str(error) or kind).strip().split("\n")[0])


def is_timeout(error: BaseException) -> bool:
    """Returns whether an error of MLflow comes from a server that did not answer in time."""
    return any("Timeout" in type(behind).__name__ for behind in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and those behind it: causes or, as urllib3 has it, errors among arguments."""
    while error:
        yield error
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        held = (getattr(error, "reason", None), *error.args)
        error = cause or next((value for value in held if isinstance(value, BaseException)), None)
