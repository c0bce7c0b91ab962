"""Remembers that MLflow's SQLite file has all that a command tells it, so that the same command need not open it again.

    if is_settled(uri, store, told):    # `told` is what decides all that MLflow is sent
        ...                             # neither the file nor MLflow is needed
    settle(uri, store, told)            # after MLflow has taken all of it

Importing MLflow and opening the file take longer than everything else in a command of which all is cached. The file's
state is remembered with what it was told last. Any other writer changes that state, be it another command or somebody
who deletes a run in the UI; then MLflow is told again, and takes what it lacks. A server is asked every time.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.store.store import LocalStore

RECORD = "mlflow"


def is_settled(uri: str, store: LocalStore, told: Sequence[Any]) -> bool:
    """Tells whether the file was told this last and has not changed since."""
    state = _state(uri)
    return state is not None and store.read_record(RECORD) == {"told": _sha256(told), "state": state}


def settle(uri: str, store: LocalStore, told: Sequence[Any]) -> None:
    """Remembers what the file was told, and its state."""
    if (state := _state(uri)) is not None:
        store.write_record(RECORD, {"told": _sha256(told), "state": state})


def _sha256(told: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def _state(uri: str) -> list[int] | None:
    """Returns figures of the file, some of which any change changes; None where it is being changed or is no file."""
    database = Path(uri.removeprefix("sqlite:///")).absolute()
    if not uri.startswith("sqlite:///") or any(Path(f"{database}-{log}").exists() for log in ("journal", "wal")):
        return None
    try:
        status = database.stat()
    except OSError:
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns]
