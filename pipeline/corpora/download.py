"""HTTP downloads that are resumed, retried, and checked against size and checksum before use."""

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
"""Statuses below 500 for which a retry may help."""


def fetch(
    urls: Sequence[str],
    path: Path,
    *,
    advice: str,
    size_bytes: int | None = None,
    checksum: str | None = None,
    attempts: int = 4,
    pause_s: float = 1.0,
    timeout_s: float = 30.0,
) -> None:
    """Downloads to `path`, which appears only once its size and checksum, as far as given, are right.

    `urls` are mirrors of each other, and the first that has the file is used. A partial file `<path>.part` of this call
    or an earlier one is resumed by HTTP Range. A URL is given up after `attempts` consecutive attempts without new
    bytes; the pauses between them double. A file that turns out wrong is fetched once more. `checksum` is "sha256:..."
    or "md5:...". Raises UserError, ending in `advice`, if no URL gives the file.
    """
    part = path.with_name(path.name + ".part")
    problems = []
    for url in urls:
        problem = _fetch_from(url, part, size_bytes, checksum, attempts, pause_s, timeout_s)
        if problem is None:
            part.replace(path)
            return
        problems.append(f"{url}: {problem}")
    raise UserError(f"cannot download {'; '.join(problems)}; {advice}")


def mismatch(path: Path, size_bytes: int | None, checksum: str | None) -> str | None:
    """Returns how a file differs from the expected one, or None; its checksum is computed only if its size is right."""
    have_bytes = path.stat().st_size
    if size_bytes is not None and have_bytes != size_bytes:
        return f"{have_bytes} bytes instead of {size_bytes}"
    if checksum is None:
        return None
    algorithm, _, expected = checksum.partition(":")
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, algorithm).hexdigest()
    return None if actual == expected else f"{algorithm} {actual} instead of {expected}"


class _OtherFileError(Exception):
    """The server has another file than the requested one."""


def _fetch_from(
    url: str,
    part: Path,
    size_bytes: int | None,
    checksum: str | None,
    attempts: int,
    pause_s: float,
    timeout_s: float,
) -> str | None:
    """Completes the partial file from one URL; returns what went wrong, or None."""
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
        # A server without ranges starts over each time, so progress means more bytes than ever before.
        failures = 0 if have_bytes > most_bytes else failures + 1
        most_bytes = max(most_bytes, have_bytes)
        if failures == attempts:
            return problem
        log.warning("%s: %s; retrying", url, problem)
        time.sleep(pause_s * 2**failures)


def _continue(url: str, part: Path, size_bytes: int | None, timeout_s: float) -> int | None:
    """Appends the missing bytes to the partial file, and at most one block more than expected.

    Returns the size of the whole file, or None if nobody knows it: the file is then complete.
    """
    have_bytes = _size(part)
    if size_bytes is not None and have_bytes >= size_bytes:
        return size_bytes
    request = urllib.request.Request(url, headers={"Range": f"bytes={have_bytes}-"} if have_bytes else {})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            ranged = response.status == 206  # a server without ranges sends the whole file again
            begin_bytes, total_bytes = _range_of(response.headers, ranged)
            if ranged and begin_bytes not in (None, have_bytes):
                raise _OtherFileError(f"the part from byte {begin_bytes} instead of {have_bytes}")
            if size_bytes is not None and total_bytes not in (None, size_bytes):
                raise _OtherFileError(f"{total_bytes} bytes instead of {size_bytes}")
            expected_bytes = size_bytes if size_bytes is not None else total_bytes
            with part.open("ab" if ranged else "wb") as file:
                while expected_bytes is None or file.tell() <= expected_bytes:
                    # Unlike read, read1 returns what has arrived, so a stalled link loses nothing.
                    if not (block := response.read1(BLOCK_BYTES)):
                        break
                    file.write(block)
            return expected_bytes
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to send: the partial file is complete, or of another file
            if have_bytes == _range_of(error.headers, ranged=True)[1]:
                return have_bytes
            part.unlink(missing_ok=True)
        raise


def _range_of(headers: Message, ranged: bool) -> tuple[int | None, int | None]:
    """Returns the first byte of the response and the size of the whole file, as far as the server says."""
    if not ranged:
        length = headers["Content-Length"]
        return 0, int(length) if length and length.isdigit() else None
    content_range = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", headers["Content-Range"] or "")
    begin, total = content_range.groups() if content_range else (None, None)
    return int(begin) if begin else None, int(total) if total and total != "*" else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
