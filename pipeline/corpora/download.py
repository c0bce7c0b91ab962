"""Resumable HTTP downloads (by obstore) with retries, verified against size and checksum before use."""

import hashlib
import logging
import re
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError, NotSupportedError
from obstore.store import HTTPStore

from pipeline.errors import UserError

if TYPE_CHECKING:
    from obstore import GetOptions

log = logging.getLogger(__name__)
RETRIES, PAUSE_S, TIMEOUT_S = 3, 1.0, 30.0


def fetch(
    urls: Sequence[str], path: Path, *, advice: str, size_bytes: int | None = None, checksum: str | None = None
) -> None:
    """Downloads to `path`, which appears only after its size and checksum, if given, are verified.

    `urls` are mirrors; the first that has the file is used. A partial `<path>.part` is resumed by HTTP Range. Requests
    that fail, break off or receive nothing for TIMEOUT_S are repeated up to RETRIES times without new bytes, with
    doubling pauses; then the next URL is tried. A wrong file is downloaded once more. `checksum` is "sha256:..." or
    "md5:...". Raises UserError, ending in `advice`, if no URL yields the file.
    """
    part = path.with_name(path.name + ".part")
    problems = []
    for url in urls:
        if not url.startswith(("http://", "https://")):
            problems.append(f"{url}: neither http:// nor https://")
            continue
        server, _, name = url.rpartition("/")
        try:
            store = HTTPStore(
                server,
                client_options={"allow_http": True, "timeout": "7d", "read_timeout": timedelta(seconds=TIMEOUT_S)},
                retry_config={"max_retries": RETRIES, "backoff": {"init_backoff": timedelta(seconds=PAUSE_S)}},
            )
            problem = _fetch_from(store, name, part, size_bytes, checksum)
        except ValueError as error:  # not an address, such as http://mirror:80a/
            problem = str(error)
        if problem is None:
            part.replace(path)
            return
        problems.append(f"{url}: {problem}")
    raise UserError(f"cannot download {'; '.join(problems)}; {advice}")


def mismatch(path: Path, size_bytes: int | None, checksum: str | None) -> str | None:
    """Describes how a file differs from the expected one, or returns None; hashes it only if its size matches."""
    have_bytes = path.stat().st_size
    if size_bytes is not None and have_bytes != size_bytes:
        return f"{have_bytes} bytes instead of {size_bytes}"
    if checksum is None:
        return None
    algorithm, _, expected = checksum.partition(":")
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, algorithm).hexdigest()
    return None if actual == expected else f"{algorithm} {actual} instead of {expected}"


def _fetch_from(store: HTTPStore, name: str, part: Path, size_bytes: int | None, checksum: str | None) -> str | None:
    """Completes the partial file from one server; returns the problem, or None."""
    most_bytes, failures, fetched_again = _size(part), 0, False
    while True:
        have_bytes, answered = _size(part), False
        try:
            if size_bytes is None or have_bytes < size_bytes:
                options: GetOptions = {"range": {"offset": have_bytes}} if have_bytes else {}
                response = obstore.get(store, name, options=options)
                if size_bytes not in (None, response.meta["size"]):
                    return f"it is not the expected file ({response.meta['size']} bytes instead of {size_bytes})"
                answered = True
                with part.open("ab") as file:
                    for block in response.stream(min_chunk_size=1):  # keeps all bytes received before a failure
                        file.write(block)
            wrong = mismatch(part, size_bytes, checksum)
            if wrong is None:
                return None
            problem = f"it is not the expected file ({wrong})"
            part.unlink()
            if fetched_again:
                return problem
            fetched_again, most_bytes = True, -1
        except (BaseError, FileNotFoundError) as error:
            problem = _problem(str(error))
            if have_bytes and (problem.startswith("HTTP 416") or isinstance(error, NotSupportedError)):
                part.unlink()  # this server cannot resume it, or it is not the beginning of its file
            elif not answered or failures >= RETRIES:  # obstore itself retries unanswered requests
                return problem
            # A server without ranges starts over each time, so progress means more bytes than ever before.
            failures = 0 if _size(part) > most_bytes else failures + 1
            most_bytes = max(most_bytes, _size(part))
        log.warning("%s: %s; retrying", name, problem)
        time.sleep(PAUSE_S * 2**failures)


def _problem(error: str) -> str:
    """Extracts the problem from a long error text: an HTTP status or the operating system's message."""
    if status := re.search(r"status code: (\d+ [A-Za-z ]+)", error):
        return f"HTTP {status[1]}"
    cause = re.search(r'(?:message|error): "([^"]+)"|kind: (Timeout|Interrupted)', error)
    return (cause and (cause[1] or cause[2])) or error.partition("\n")[0]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
