"""Downloads over HTTP that are continued, retried and checked against size and checksum before use."""

import hashlib
import http.client
import logging
import re
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from email.message import Message
from pathlib import Path

from pipeline.errors import UserError
from pipeline.store.artifact import DISK_FULL

log = logging.getLogger(__name__)
BLOCK_BYTES = 1 << 16
RETRIED = (408, 416, 429)
"""Statuses below 500 after which asking again may help."""


def fetch(
    urls: Sequence[str],
    path: Path,
    *,
    otherwise: str,
    size_bytes: int | None = None,
    checksum: str | None = None,
    attempts: int = 4,
    pause_s: float = 1.0,
    timeout_s: float = 30.0,
) -> None:
    """Downloads to `path`, which appears only once size and checksum, as far as given, are right.

    The first of `urls`, mirrors of each other, that has the file is used. A partial file `<path>.part`, of this call
    or an earlier one, is continued by HTTP Range, for as long as each of `attempts` in a row brings something; the
    pauses between them double. A file that turns out wrong is fetched once more. `checksum` is "sha256:..." or
    "md5:...". Raises UserError, ending in the advice `otherwise`, where no URL gives the file.
    """
    part = path.with_name(path.name + ".part")
    problems = []
    for url in urls:
        problem = _fetch_from(url, part, size_bytes, checksum, attempts, pause_s, timeout_s)
        if problem is None:
            part.replace(path)
            return
        problems.append(f"{url}: {problem}")
    raise UserError(f"cannot download {'; '.join(problems)}; {otherwise}")


def mismatch(path: Path, size_bytes: int | None, checksum: str | None) -> str | None:
    """What tells a file from the one expected: its size or, read only where that is right, its checksum."""
    have_bytes = path.stat().st_size
    if size_bytes is not None and have_bytes != size_bytes:
        return f"{have_bytes} bytes instead of {size_bytes}"
    if checksum is None:
        return None
    algorithm, _, expected = checksum.partition(":")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, algorithm).hexdigest()
    return None if found == expected else f"{algorithm} {found} instead of {expected}"


class _OtherFileError(Exception):
    """What the server has is not what was asked for."""


def _fetch_from(
    url: str,
    part: Path,
    size_bytes: int | None,
    checksum: str | None,
    attempts: int,
    pause_s: float,
    timeout_s: float,
) -> str | None:
    """Completes the partial file from one URL; returns what is wrong, None where nothing is."""
    if not url.startswith(("http://", "https://")):
        return "it is neither http:// nor https://"
    failures, fetched_again, problem, most_bytes = 0, False, "", _size(part)
    while True:
        try:
            total_bytes = _continue(url, part, size_bytes, timeout_s)
            if total_bytes is None or _size(part) >= total_bytes:
                wrong = mismatch(part, total_bytes, checksum)
                if wrong is None:
                    return None
                part.unlink()
                problem = f"it is not the file expected ({wrong})"
                if fetched_again:
                    return problem
                fetched_again, most_bytes = True, -1
            else:
                problem = f"ended after {_size(part)} of {total_bytes} bytes"
        except urllib.error.HTTPError as error:
            problem = f"HTTP {error.code} {error.reason}"
            if error.code < 500 and error.code not in RETRIED:
                return problem
        except _OtherFileError as error:
            return f"it is not the file expected ({error})"
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise
            problem = str(getattr(error, "reason", error)) or type(error).__name__
        have_bytes = _size(part)
        failures = 0 if have_bytes > most_bytes else failures + 1  # more than ever: without ranges it comes and goes
        most_bytes = max(most_bytes, have_bytes)
        if failures == attempts:
            return problem
        log.warning("%s: %s; trying again", url, problem)
        time.sleep(pause_s * 2**failures)


def _continue(url: str, part: Path, size_bytes: int | None, timeout_s: float) -> int | None:
    """Appends what is missing to the partial file, and at most one block more than expected.

    Returns the bytes of the whole, None where the server does not tell either: it is complete then.
    """
    have_bytes = _size(part)
    if size_bytes is not None and have_bytes >= size_bytes:
        return size_bytes
    request = urllib.request.Request(url, headers={"Range": f"bytes={have_bytes}-"} if have_bytes else {})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            ranged = response.status == 206  # a server without ranges sends the whole file again
            begin_bytes, total_bytes = _told(response.headers, ranged)
            if ranged and begin_bytes not in (None, have_bytes):
                raise _OtherFileError(f"the part from byte {begin_bytes} instead of {have_bytes}")
            if size_bytes is not None and total_bytes not in (None, size_bytes):
                raise _OtherFileError(f"{total_bytes} bytes instead of {size_bytes}")
            expected_bytes = size_bytes if size_bytes is not None else total_bytes
            with part.open("ab" if ranged else "wb") as file:
                while expected_bytes is None or file.tell() <= expected_bytes:
                    if not (block := response.read1(BLOCK_BYTES)):  # no waiting for more, which silence would lose
                        break
                    file.write(block)
            return expected_bytes
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to send: the partial file is whole, or another file's
            if have_bytes == _told(error.headers, ranged=True)[1]:
                return have_bytes
            part.unlink(missing_ok=True)
        raise


def _told(headers: Message, ranged: bool) -> tuple[int | None, int | None]:
    """First byte of the answer and bytes of the whole file, as far as the server says."""
    if not ranged:
        length = headers["Content-Length"]
        return 0, int(length) if length and length.isdigit() else None
    told = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", headers["Content-Range"] or "")
    begin, total = told.groups() if told else (None, None)
    return int(begin) if begin else None, int(total) if total and total != "*" else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
