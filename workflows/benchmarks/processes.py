"""Contenders of a benchmark, each in a process of its own, so that threads, caches and peak memory are each one's own.

    with ContenderProcess(Ours, workload) as ours:
        ours.call("round", 10)

A contender is any object; its methods are called through a pipe, one at a time, and the other processes wait at their
pipes meanwhile. `Running` is a contender at work, with what becomes of one that fails.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Generic, Protocol, TypeVar

from pipeline.errors import UserError

OUT_OF_MEMORY = "out of memory"


class ContenderError(Exception):
    """Why a contender can go no further: out of memory, a library missing, refused, or dead; the message says which."""


class ContenderProcess:
    """A process that holds one contender; leaving the `with` block ends it at once."""

    def __init__(self, make: Callable[..., Any], *arguments: Any, environment: Mapping[str, str] | None = None) -> None:
        """Starts a process that calls `make(*arguments)`, importable both; `call` waits for it.

        `environment` is added to that of this process.
        """
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
        # Ctrl-C goes to all processes of the terminal: this one ends the others, without a traceback of each.
        handler, before = signal.signal(signal.SIGINT, signal.SIG_IGN), dict(os.environ)
        try:
            os.environ.update(environment or {})
            self.process.start()
        finally:
            os.environ.clear()
            os.environ.update(before)
            signal.signal(signal.SIGINT, handler)
        theirs.close()  # so that a dead process is the end of the pipe

    def call(self, method: str, *arguments: Any) -> Any:
        """What the contender's method returns.

        Raises ContenderError where the process is out of memory, lacks a library or has died, and both that and
        UserError where the method raised it.
        """
        self.send(method, *arguments)
        return self.receive()

    def send(self, method: str, *arguments: Any) -> None:
        """Begins a call, whose result `receive` waits for; other processes can compute meanwhile."""
        with suppress(OSError):  # of a dead process, which `receive` tells
            self._pipe.send((method, arguments))

    def receive(self) -> Any:
        """What the method begun last returns; raises as `call` does."""
        try:
            result = self._pipe.recv()
        except (EOFError, OSError):
            raise ContenderError(self._death()) from None
        if isinstance(result, UserError | ContenderError):
            raise result
        return result

    def _death(self) -> str:
        self.process.join(timeout=10)
        status = self.process.exitcode
        if status is not None and status < 0:
            return f"killed by {signal.Signals(-status).name}"
        return f"died with exit status {status}"

    def __enter__(self) -> "ContenderProcess":
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Kills the process."""
        self.process.kill()
        self.process.join()
        self._pipe.close()


class Measured(Protocol):
    """What is known of a contender."""

    name: str
    failed: str | None
    """Why it has no figures."""


MeasuredT = TypeVar("MeasuredT", bound=Measured)


@dataclass
class Running(Generic[MeasuredT]):
    """A contender at work, in one process or in several that share its work; leaving the `with` block ends them."""

    rates: MeasuredT
    processes: Sequence[ContenderProcess]
    mend: str = ""
    """What to do where it fails, which then ends the benchmark; empty for a peer, which is left out of what follows."""

    def call(self, method: str, *arguments: Any) -> Any:
        """What the method of the first process returns; None of a peer that has failed.

        Raises UserError where the method raised it, or where a contender fails that is no peer.
        """
        return (self.call_each(method, [arguments]) or [None])[0]

    def call_each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any] | None:
        """As `call`, in as many processes at once as there are tuples of arguments."""
        if self.rates.failed:
            return None
        processes = self.processes[: len(arguments)]
        try:
            for process, given in zip(processes, arguments, strict=True):
                process.send(method, *given)
            return [process.receive() for process in processes]
        except ContenderError as error:
            if self.mend:
                raise UserError(f"{self.rates.name}: {error}; {self.mend}") from None
            self.rates.failed = str(error)
            self.end()
            return None

    def __enter__(self) -> "Running[MeasuredT]":
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Kills the processes."""
        for process in self.processes:
            process.end()


def _serve(pipe: Connection, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Answers calls until the other end is closed."""
    contender = None
    with suppress(EOFError, BrokenPipeError):
        while True:
            method, method_arguments = pipe.recv()
            try:
                contender = contender or make(*arguments)
                result = getattr(contender, method)(*method_arguments)
            except (UserError, ContenderError) as error:
                result = error
            except ImportError as error:
                result = ContenderError(" ".join(str(error).split()))
            except (MemoryError, RuntimeError) as error:  # torch raises both where memory is short
                if isinstance(error, RuntimeError) and "memory" not in str(error):
                    raise
                result = ContenderError(OUT_OF_MEMORY)
            pipe.send(result)
