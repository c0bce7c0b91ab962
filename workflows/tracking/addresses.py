"""MLflow's address and its errors, shown without users and passwords."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import UserError


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


def without_password(text: str) -> str:
    """Removes users and passwords from the addresses in a text."""
    return re.sub(r"(?<=://)[^/\s]*@", "", text)


def public_address(uri: str) -> str:
    """Returns MLflow's address without user and password, even if characters in them should have been escaped."""
    scheme, sign, rest = uri.partition("://")
    return uri if uri.startswith("sqlite") or not sign else scheme + sign + rest.rpartition("@")[2]


def reason_of(error: BaseException, uri: str) -> str:
    """Returns the first line of an error, or of the cause of MLflow's error at `uri`.

    If the address has a password, returns only the kind of error, since the text may quote any part of the address.
    """
    *_, cause = [error] if isinstance(error, UserError) else causes(error)
    kind = type(cause).__name__
    return kind if public_address(uri) != uri else without_password((str(cause) or kind).strip().split("\n")[0])


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and its causes."""
    while error:
        yield error
        error = error.__cause__ or error.__context__
