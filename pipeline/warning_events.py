"""Turns warnings of the project's loggers into events of the running stage.

The engine does so around every stage and map task; training and decoding do so in the processes that they start. Code
within a stage just logs.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from pipeline.context import Listener

Result = TypeVar("Result")

PACKAGES = ("model", "pipeline", "workflows")
"""Loggers whose warnings become events; libraries' do not."""


class _Emitter(logging.Handler):
    def __init__(self, emit: Listener) -> None:
        super().__init__(logging.WARNING)
        self._emit = emit

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._emit({"warning": " ".join(record.getMessage().split())})
        except Exception:  # an undeliverable warning must not end the stage
            self.handleError(record)


def emitting_warnings(emit: Listener, function: Callable[..., Result], *arguments: Any) -> Result:
    """Calls the function; emits {"warning": one line} for each warning meanwhile logged by a thread of the process."""
    handler, loggers = _Emitter(emit), [logging.getLogger(name) for name in PACKAGES]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        return function(*arguments)
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
