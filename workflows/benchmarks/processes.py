"""Contenders of a benchmark, each in its own process, so that they share no threads, caches or peak memory.

    with ContenderProcess(OurLoop, workload) as ours:
        ours.call("round", 10)

A contender is any object. Its methods are called through a pipe, one at a time, while the other processes wait at their
pipes. `RunningContender` joins a contender's processes with its measurements and handles failures.
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
from pipeline.memory import is_out_of_memory

OUT_OF_MEMORY = "out of memory"


class ContenderError(Exception):
    """A contender cannot go on: it is out of memory, lacks a library, refused, or died. The message says which."""


class ContenderProcess:
    """A process that holds one contender; leaving the `with` block kills it."""

    def __init__(self, make: Callable[..., Any], *arguments: Any, environment: Mapping[str, str] | None = None) -> None:
        """Starts a process that calls `make(*arguments)`; `call` waits for it.

        `make` and the arguments must be picklable. `environment` is added to this process's environment.
        """
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
        # Ctrl-C reaches all processes of the terminal; this one ends the others, so that none prints a traceback.
        handler, before = signal.signal(signal.SIGINT, signal.SIG_IGN), dict(os.environ)
        try:
            os.environ.update(environment or {})
            self.process.start()
        finally:
            os.environ.clear()
            os.environ.update(before)
            signal.signal(signal.SIGINT, handler)
        theirs.close()  # so that the pipe ends when the process dies

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the contender and returns its result.

        Raises ContenderError if the process is out of memory, lacks a library or has died, and re-raises a
        ContenderError or UserError of the method itself.
        """
        self.send(method, *arguments)
        return self.receive()

    def send(self, method: str, *arguments: Any) -> None:
        """Begins a call whose result `receive` waits for; other processes can compute meanwhile."""
        with suppress(OSError):  # the process is dead, which `receive` reports
            self._pipe.send((method, arguments))

    def receive(self) -> Any:
        """Returns the result of the call begun last; raises what `call` raises."""
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


class ContenderRates(Protocol):
    """The part of a contender's measurements that every benchmark has."""

    name: str
    failed: str | None
    """Why the contender has no figures, or None."""


RatesT = TypeVar("RatesT", bound=ContenderRates)


@dataclass
class RunningContender(Generic[RatesT]):
    """A contender in one process, or in several that share its work; leaving the `with` block kills them."""

    rates: RatesT
    processes: Sequence[ContenderProcess]
    advice: str = ""
    """What the user can do if it fails, which then ends the benchmark. Empty for a peer, which just drops out."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method in the first process and returns its result, or None for a peer that has failed.

        Raises UserError if the method raises it, or if our own contender fails.
        """
        return (self.call_each(method, [arguments]) or [None])[0]

    def call_each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any] | None:
        """Like `call`, in as many processes at once as there are tuples of arguments."""
        if self.rates.failed:
            return None
        processes = self.processes[: len(arguments)]
        try:
            for process, given in zip(processes, arguments, strict=True):
                process.send(method, *given)
            return [process.receive() for process in processes]
        except ContenderError as error:
            if self.advice:
                raise UserError(f"{self.rates.name}: {error}; {self.advice}") from None
            self.rates.failed = str(error)
            self.end()
            return None

    def __enter__(self) -> "RunningContender[RatesT]":
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
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                result = ContenderError(OUT_OF_MEMORY)
            pipe.send(result)
