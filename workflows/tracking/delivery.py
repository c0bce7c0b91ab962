"""Delivers what a command logs to MLflow, although its server may be away: at the start, in between, until the end.

A call that cannot be sent is kept in a file (`workflows.tracking.journal`), with those that follow; every now and then,
and when the next command on the same folder begins, what is kept is sent. A workflow never waits long for it.

Nothing is lost, and nothing arrives twice, because the calls name runs by fingerprints rather than by MLflow's ids and
send only what MLflow lacks: so they can be repeated in order, from the ones that open the runs, whatever part of them
the server has taken. The store alone would not do as a journal. It has the curves of trainings, but which runs they
belong to, under which names and settings, only the command that made them knows.
"""

import inspect
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from pydantic import validate_call
from pydantic_core import to_jsonable_python

from pipeline.errors import UserError
from workflows.tracking.addresses import is_malformed, public_address, reason_of, without_password
from workflows.tracking.journal import Call, Journal, left_behind

logger = logging.getLogger(__name__)

TIMEOUT, RETRIES = "MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
ANSWER_S, FILES_S = 10, 120
"""How long a server may take to answer, and to answer once it has a file; by default MLflow waits for minutes."""
USUAL = {TIMEOUT: str(ANSWER_S), RETRIES: "1", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
"""MLflow's settings, where the user has no others; at the end of a run it would print the address, with a password."""
PAUSE_S = 30.0
"""The least time between two attempts to send what is kept."""
PAUSE_FACTOR = 20
"""And at least so many times what the last attempt took, so that a silent server takes 5 % of the time at most."""
NOT_THE_CALL_S = (401, 403, 408, 429)
"""HTTP statuses that say nothing about the call: another password or another time changes them."""

AWAY = "away"
UNANSWERED = "the tracking server at %s does not answer (%s); figures are kept in %s and sent when it is back"
UNTAKEN = "MLflow at %s does not take what it is sent (%s); it is kept in %s and sent again later"
REFUSED = "MLflow at %s does not take what it is sent: %s"

T = TypeVar("T", bound="Delivery")
P = ParamSpec("P")
R = TypeVar("R")


def kept(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R | None]:
    """Decorates a method of a tracker: a call that cannot be sent is kept, and returns None.

    Its arguments must have types that pydantic can write as JSON and read again.
    """
    signature = inspect.signature(method)

    @wraps(method)
    def call(self: T, *args: P.args, **kwargs: P.kwargs) -> R | None:
        arguments = dict(signature.bind(self, *args, **kwargs).arguments)
        del arguments["self"]
        result: R | None = self.deliver(method, arguments)
        return result

    return call


@contextmanager
def files() -> Iterator[None]:
    """Lets the server take longer to answer while files are sent, unless the user has set how long."""
    usual = os.environ.get(TIMEOUT)
    if usual == str(ANSWER_S):
        os.environ[TIMEOUT] = str(FILES_S)
    try:
        yield
    finally:
        if usual is not None:
            os.environ[TIMEOUT] = usual


class Delivery:
    """The part of a tracker that knows what has been sent; a subclass does the sending, in methods that are `kept`."""

    opening: tuple[str, ...] = ()
    """The names of the methods that open runs, which come first whenever calls are repeated."""

    def __init__(self, uri: str, experiment: str, runs: Path) -> None:
        self.uri, self.experiment, self._runs = uri, experiment, runs
        self._place = public_address(uri)
        self._openings: list[tuple[str, Mapping[str, Any]]] = []
        self._in_memory: list[tuple[str, Mapping[str, Any]]] = []
        """The calls whose figures wait in memory to be sent together."""
        self._journal: Journal | None = None
        self._has_begun = self._has_answered = False
        self._next_try_s = 0.0
        self._warned: set[str] = set()
        for name, value in USUAL.items():
            os.environ.setdefault(name, value)

    def ask(self) -> None:
        """Asks the server something simple. Raises what MLflow raises where it does not answer."""
        raise NotImplementedError

    def forget(self) -> None:
        """Forgets what is known of the server: it may come back without what it had."""
        raise NotImplementedError

    def has_pending(self) -> bool:
        """Returns whether figures wait in memory to be sent together."""
        raise NotImplementedError

    def send_pending(self) -> None:
        """Sends what waits in memory. Raises what MLflow raises."""
        raise NotImplementedError

    def deliver(self, method: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Calls a method and returns its result; keeps a call that cannot be sent and returns None.

        Raises UserError where the address or the password is wrong, if nothing has been sent before.
        """
        if not self._has_begun:
            if is_malformed(self.uri):
                raise UserError(f"MLFLOW_TRACKING_URI: {self._place} is no address; such is http://HOST:5000")
            self._has_begun = True
            self._send_left_behind()
        call = (method.__name__, arguments)
        opens = method.__name__ in self.opening
        if self._journal is None or self.retry():
            try:
                result = method(self, **arguments)
            except Exception as error:
                if opens and not self._has_answered:
                    self._check_address(error)
                # What opened the runs goes first. All is sent again at once: the server may merely have forgotten them.
                self._keep([*self._openings, *self._in_memory, call])
                self._openings += [call] * opens
                self._in_memory.clear()
                self._send(error)
                return None
            self._has_answered = True
            self._openings += [call] * opens
            if not self.has_pending():
                self._in_memory.clear()
            elif not opens:
                self._in_memory.append(call)
            return result
        self._openings += [call] * opens
        self._keep([call])
        return None

    def retry(self, *, now: bool = False) -> bool:
        """Sends what is kept if it is time to try again, or `now`; returns whether nothing is left."""
        if self._journal is not None and (now or time.monotonic() >= self._next_try_s):
            self._send()
        return self._journal is None

    def _send_left_behind(self) -> None:
        """Sends what earlier commands have kept for this server, as long as it takes it."""
        for journal in left_behind(self._runs, self.uri):
            earlier = type(self)(self.uri, journal.experiment, self._runs)
            earlier._journal, earlier._warned = journal, {AWAY}
            try:
                earlier._send_kept(time.monotonic())
            finally:
                journal.leave()
            if earlier._journal:
                break

    def close(self) -> None:
        """Leaves what is kept to the next command, after a last attempt."""
        if not self.retry(now=True) and self._journal:
            self._journal.leave()
            self._journal = None

    def _send(self, reason: Exception | None = None) -> None:
        """Sends what is kept, that of earlier commands first: theirs may have ended a run that ours goes on with."""
        if self._journal is not None:  # else the disk is full
            began_s = time.monotonic()
            self._send_left_behind()
            self._send_kept(began_s, reason)

    def _send_kept(self, began_s: float, reason: Exception | None = None) -> None:
        """Repeats the calls that are kept, and goes on keeping those that are still not taken.

        The attempt began at `began_s`, by the clock that only goes forward; `reason` is the error that led to it.
        """
        assert self._journal
        openings, left = list[Call](), list[Call]()
        try:
            self.ask()
            calls = self._journal.read()
            self.forget()
        except Exception as error:
            self._away(reason or error, began_s)
            return
        for call in calls:
            opens = call.call in self.opening
            try:
                self._repeat(call)
                openings += [call] * opens
            except Exception as error:
                if is_refused(error) and not opens:
                    self._warn("refused", REFUSED, self._place, reason_of(error, self.uri))
                elif opens or not self._answers():
                    self._away(reason or error, began_s)
                    return
                else:  # the others may fare better
                    reason = error
                    left.append(call)
        try:
            self.send_pending()
        except Exception as error:
            if not is_refused(error):
                self._away(reason or error, began_s)
                return
            self._warn("refused", REFUSED, self._place, reason_of(error, self.uri))
        if left:
            self._journal.replace([*openings, *left])
            assert reason
            self._away(reason, began_s, UNTAKEN)
        else:
            self._has_answered = True
            self._journal.remove()
            self._journal = None
            logger.info("the tracking server at %s has got what was kept for it", self._place)

    def _repeat(self, call: Call) -> None:
        _reading(inspect.unwrap(getattr(type(self), call.call)))(self, **call.arguments)

    def _answers(self) -> bool:
        try:
            self.ask()
        except Exception:
            return False
        return True

    def _keep(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        try:
            if self._journal is None:
                self._journal = Journal.begin(self._runs, self.uri, self.experiment)
            self._journal.append([Call(name, _plain(arguments)) for name, arguments in calls])
        except (OSError, UserError) as error:
            self._warn("disk", "what the tracking server at %s does not take cannot be kept: %s", self._place, error)

    def _away(self, error: Exception, began_s: float, text: str = UNANSWERED) -> None:
        assert self._journal
        now_s = time.monotonic()
        self._next_try_s = now_s + max(PAUSE_S, PAUSE_FACTOR * (now_s - began_s))
        self._warn(AWAY, text, self._place, reason_of(error, self.uri), self._journal.path)

    def _warn(self, what: str, text: str, *told: object) -> None:
        if what not in self._warned:
            self._warned.add(what)
            logger.warning(text, *told)

    def _check_address(self, error: Exception) -> None:
        """Raises UserError where waiting would not help: the server refuses us, the address or the file is wrong."""
        if self.uri.startswith("sqlite:") or _status(error) in (400, 401, 403, 404) or isinstance(error, ImportError):
            raise UserError(
                f"MLflow at {self._place} does not answer ({reason_of(error, self.uri)}); "
                "check MLFLOW_TRACKING_URI or unset it"
            ) from None


@cache
def _reading(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that makes its arguments of what JSON holds of them."""
    return validate_call(method)


def _plain(arguments: Mapping[str, Any]) -> Any:
    """Returns a call's arguments as JSON can hold them, without passwords."""
    return _stripped(to_jsonable_python(dict(arguments), fallback=str))


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _stripped(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_stripped(one) for one in value]
    return without_password(value) if isinstance(value, str) else value


def _status(error: Exception) -> int | None:
    """Returns the HTTP status of an error, or the one that MLflow gives an error of its own."""
    from mlflow.exceptions import MlflowException
    from requests import HTTPError

    if isinstance(error, MlflowException):
        # BAD_REQUEST is what a database says, e.g. where another command has just made the same dataset.
        return 500 if error.error_code == "BAD_REQUEST" else int(error.get_http_status_code())
    return error.response.status_code if isinstance(error, HTTPError) and error.response is not None else None


def is_refused(error: Exception) -> bool:
    """Returns whether the same call would fail again, whenever it is repeated."""
    from requests import RequestException

    status = _status(error)
    if status is not None:
        return 400 <= status < 500 and status not in NOT_THE_CALL_S
    missing_here = (FileNotFoundError, UserError, LookupError, TypeError, ValueError, AttributeError)
    return isinstance(error, missing_here) and not isinstance(error, RequestException)
