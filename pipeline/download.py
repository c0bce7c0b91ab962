"""Downloads over HTTP that are continued, retried and checked against size and sha256 before use."""

import errno
import http.client
import logging
import time
import urllib.error
import urllib.request
from pathlib import Path

from pipeline.artifacts import file_sha256
from pipeline.errors import UserError

log = logging.getLogger(__name__)
BLOCK_BYTES = 1 << 16
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def fetch(
    url: str,
    path: Path,
    *,
    size_bytes: int,
    sha256: str,
    otherwise: str,
    attempts: int = 4,
    pause_s: float = 1.0,
    timeout_s: float = 30.0,
) -> None:
    """Downloads `url` to `path`, which appears only once size and sha256 are right.

    A partial file `<path>.part`, of this call or an earlier one, is continued by HTTP Range, for as long as each of
    `attempts` in a row brings something; the pauses between them double. Raises UserError, ending in the advice
    `otherwise`, where the server refuses, the content is not the expected one or the attempts are used up.
    """
    if not url.startswith(("http://", "https://")):
        raise UserError(f"{url} is neither http:// nor https://; {otherwise}")
    part = path.with_name(path.name + ".part")
    failures, restarted, problem = 0, False, ""
    while failures < attempts:
        before_bytes = part.stat().st_size if part.exists() else 0
        try:
            _continue(url, part, size_bytes, timeout_s)
            problem = f"ended after {part.stat().st_size} of {size_bytes} bytes"
        except urllib.error.HTTPError as error:
            problem = f"HTTP {error.code} {error.reason}"
            if error.code < 500 and error.code not in (408, 416, 429):
                break
            if error.code == 416:  # the partial file is longer than the server's
                part.unlink(missing_ok=True)
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise
            problem = str(getattr(error, "reason", error))
        have_bytes = part.stat().st_size if part.exists() else 0
        if have_bytes == size_bytes and file_sha256(part) == sha256:
            part.replace(path)
            return
        if have_bytes >= size_bytes:
            part.unlink()
            problem = f"it is not the file expected ({size_bytes} bytes, sha256 {sha256})"
            if restarted or not before_bytes:
                break
            restarted = True  # the part at hand may have been the wrong one
        failures = 0 if before_bytes < have_bytes < size_bytes else failures + 1
        log.warning("%s: %s; trying again", url, problem)
        time.sleep(pause_s * 2**failures)
    raise UserError(f"cannot download {url}: {problem}; {otherwise}")


def _continue(url: str, part: Path, size_bytes: int, timeout_s: float) -> None:
    """Appends what is missing to the partial file, and at most one block more than expected."""
    have_bytes = part.stat().st_size if part.exists() else 0
    if have_bytes >= size_bytes:
        return
    request = urllib.request.Request(url, headers={"Range": f"bytes={have_bytes}-"} if have_bytes else {})
    with urllib.request.urlopen(request, timeout=timeout_s) as response:
        ranged = response.status == 206  # a server without ranges sends the whole file again
        with part.open("ab" if ranged else "wb") as file:
            while file.tell() <= size_bytes and (block := response.read(BLOCK_BYTES)):
                file.write(block)
