"""Runs a benchmark's contenders in turn in separate processes, which share no threads, caches or peak memory.

with processes():
    ours = Contender("aiayn", "float32", OurLoop, settings)
    ours.rounds.append(ours.call("round", 10))
"""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from statistics import median
from typing import Any

import typer

from pipeline.errors import UserError

OURS = "aiayn"
_in_this_process: Any = None


@contextmanager
def processes() -> Iterator[None]:
    """Kills the contenders' processes at the end of the body."""
    try:
        yield
    finally:
        for process in multiprocessing.active_children():
            process.kill()


class Contender:
    """A contender in one process, or in several that share the work."""

    def __init__(self, name: str, dtype: str, make: Callable[..., Any], *arguments: Any, workers: int = 1) -> None:
        """Starts processes that call `make(*arguments)`, which must be picklable, before their first other call."""
        self.name, self.dtype, self.workers, self.failed = name, dtype, workers, ""
        self.rounds: list[dict[str, Any]] = []
        self._make, self._arguments = make, arguments
        spawn = multiprocessing.get_context("spawn")
        # Ctrl-C reaches all processes of the terminal. This process kills the others, so that none prints a traceback.
        ignore = signal.signal, (signal.SIGINT, signal.SIG_IGN)
        self._pools = [ProcessPoolExecutor(1, spawn, *ignore) for _ in range(workers)]
        for pool in self._pools:
            pool.submit(os.getpid)  # starts the process

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method in the first process. Returns its result, or None for a failed peer.

        Raises UserError if our contender fails.
        """
        return (self.call_each(method, [arguments]) or [None])[0]

    def call_each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any] | None:
        """Like `call`, in one process per tuple of arguments, all at once."""
        if self.failed:
            return None
        try:
            calls = [
                pool.submit(_call, self._make, self._arguments, method, of_process)
                for pool, of_process in zip(self._pools, arguments, strict=False)
            ]
            return [call.result() for call in calls]
        except Exception as error:  # out of memory, killed, or a library that does not support the machine or the model
            self.failed = " ".join(f"{type(error).__name__}: {error}".split())
            if self.name == OURS:
                raise UserError(f"{self.name}: {self.failed}") from error
            return None

    def rates(self, what: str) -> list[float]:
        """Returns the rate of `what` in each round, per second; empty if the contender failed."""
        return [] if self.failed else [done[what] / done["seconds"] for done in self.rounds]

    def summary(self, what: str, key: str) -> dict[str, Any]:
        """Returns the contender's part of --json, with its rate of `what` under `key`."""
        summary: dict[str, Any] = {"name": self.name, "dtype": self.dtype, "failed": self.failed or None}
        if rates := self.rates(what):
            summary |= {key: median(rates), f"{key}_spread": [min(rates), max(rates)]}
        return summary


def _call(make: Callable[..., Any], made_of: tuple[Any, ...], method: str, arguments: tuple[Any, ...]) -> Any:
    global _in_this_process
    _in_this_process = _in_this_process or make(*made_of)
    return getattr(_in_this_process, method)(*arguments)


def is_installed(package: str) -> bool:
    """Whether the package can be imported."""
    try:
        return find_spec(package) is not None
    except ImportError:
        return False


def ratio(name: str, ours_by_round: Sequence[float], peers_by_round: Sequence[float]) -> dict[str, Any]:
    """Returns the ratio of the median rates and its range over rounds, both None if either side has no rates."""
    if not (ours_by_round and peers_by_round):
        return {name: None, f"{name}_spread": None}
    by_round = [ours / peers for ours, peers in zip(ours_by_round, peers_by_round, strict=True)]
    return {name: median(ours_by_round) / median(peers_by_round), f"{name}_spread": [min(by_round), max(by_round)]}


def print_result(result: Mapping[str, Any], as_json: bool) -> None:
    """Prints a result as JSON, on one line for --json, else indented."""
    typer.echo(json.dumps(result, indent=None if as_json else 2))
