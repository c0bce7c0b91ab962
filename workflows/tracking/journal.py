"""Files of what a tracking server has not taken yet: `<runs>/mlflow-unsent/<time>-<random>.jsonl`, one per command.

The first line names the server, without user and password, and the experiment. Each further line is a call of a method
of `workflows.tracking.tracker.Tracker`, e.g. {"call": "results", "arguments": {"fingerprint": "...", "values": {}}}. A
file is appended to; when part of it has been sent, another takes its place by one rename. The command that writes it
holds the lock on it, so that nobody else sends it meanwhile; what a command leaves, the next one sends.
"""

import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from pipeline.store.locks import FileLock
from workflows.tracking.addresses import public_address

FOLDER = "mlflow-unsent"
TASK = "figures for MLflow"


@dataclass(frozen=True)
class Call:
    """A call that could not be sent; its arguments are what JSON can hold."""

    call: str
    arguments: Mapping[str, Any]


class Journal:
    """The calls that one command could not send. It is closed by `remove`, or by `leave` for the next command."""

    def __init__(self, path: Path, lock: FileLock, experiment: str) -> None:
        self.path, self.experiment, self._lock = path, experiment, lock

    @classmethod
    def begin(cls, runs: Path, uri: str, experiment: str) -> Self:
        """Makes the file of a command. Raises OSError or UserError where that cannot be done."""
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}.jsonl"
        path = runs.absolute() / FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, TASK)
        lock.take()
        path.write_text(_line({"uri": public_address(uri), "experiment": experiment}), encoding="utf-8")
        return cls(path, lock, experiment)

    def append(self, calls: Sequence[Call]) -> None:
        """Adds calls to the file. Raises OSError where the disk does not take them."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(_line(asdict(call)) for call in calls))

    def read(self) -> list[Call]:
        """Returns the calls, the oldest first; a line that a killed process did not finish is left out."""
        calls = []
        for line in self.path.read_text(encoding="utf-8").splitlines()[1:]:
            try:
                calls.append(Call(**json.loads(line)))
            except (ValueError, TypeError):
                continue
        return calls

    def replace(self, calls: Sequence[Call]) -> None:
        """Keeps these calls alone."""
        header = self.path.read_text(encoding="utf-8").splitlines()[0]
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(f"{header}\n" + "".join(_line(asdict(call)) for call in calls), encoding="utf-8")
        os.replace(temporary, self.path)

    def remove(self) -> None:
        """Deletes the file, since all of it has been sent."""
        self.path.unlink(missing_ok=True)
        self.leave()

    def leave(self) -> None:
        """Leaves the file to the next command."""
        self._lock.release()


def left_behind(runs: Path, uri: str) -> Iterator[Journal]:
    """Yields the files for the server at `uri` that ended commands left, oldest first; the caller closes each."""
    for path in sorted((runs.absolute() / FOLDER).glob("*.jsonl")):
        lock = FileLock(path, TASK)
        try:
            header = json.loads(path.read_text(encoding="utf-8").partition("\n")[0])
            is_ours = header["uri"] == public_address(uri) and lock.take() is None
        except (OSError, ValueError, LookupError):  # sent by another command meanwhile, or not begun properly
            continue
        if not is_ours:
            continue
        if path.exists():
            yield Journal(path, lock, header["experiment"])
        else:
            lock.release()


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False) + "\n"
