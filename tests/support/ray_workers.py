"""The processes of this session's Ray cluster. Others on the machine are neither counted nor killed."""

from contextlib import suppress

import psutil


def tasks_below(pid: int | None = None) -> dict[int, str]:
    """Returns the titles of the tasks and actors below a process, by default this one, by their process."""
    titles = {}
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            titles[process.pid] = " ".join(process.cmdline()).strip()
    return {pid: title.removeprefix("ray::") for pid, title in titles.items() if title.startswith("ray::")}


def workers_alive(*names: str) -> list[int]:
    return [pid for pid, title in tasks_below().items() if title.startswith(names)]
