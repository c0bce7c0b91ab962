"""The processes of this session's Ray cluster. Others on the machine are neither counted nor killed."""

from contextlib import suppress

import psutil


def workers_alive(*names: str) -> list[int]:
    alive = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if " ".join(process.cmdline()).startswith(tuple(f"ray::{name}" for name in names)):
                alive.append(process.pid)
    return alive
