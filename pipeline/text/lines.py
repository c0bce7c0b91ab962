"""Streams text as lines: plain or gzip, strict UTF-8, split only at "\\n".

U+2028, U+0085, "\\r" and the like stay inside a line; `str.splitlines` and text-mode files would split there and
misalign parallel text.
"""

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pipeline.errors import UserError
from pipeline.text.formats import HEAD_BYTES, MAX_LINE_BYTES, check_is_text, noticing, segments

Errors: TypeAlias = Literal["strict", "surrogateescape", "drop"]
"""Invalid UTF-8 raises UserError, becomes surrogates that `is_utf8` finds, or makes a DroppedLine."""
BYTE_ORDER_MARK = "\ufeff"
GZIP_MAGIC = b"\x1f\x8b"  # never valid UTF-8, so content identifies gzip files regardless of name
INVALID, TOO_LONG = "invalid", "too_long"


class DroppedLine(str):
    """Stands for a line that is not UTF-8 or too long: the reason, INVALID or TOO_LONG."""

    problem: str
    """What is wrong, with file and line."""


def is_utf8(line: str) -> bool:
    """Whether a line read with "surrogateescape" was valid UTF-8."""
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_lines(path: Path, errors: Errors = "strict", notice: bool = False) -> Iterator[str]:
    """Yields the lines of a plain or gzip file without "\\n"; a leading byte order mark is dropped.

    Of WMT's SGML, yields the segments. Raises UserError, naming file and line, if the file is damaged, unreadable, of
    another format, not UTF-8 or has a line over 1 MiB; with `errors` "drop", yields a DroppedLine for such a line. With
    `notice`, warns of the marks of other tools (`pipeline.text.formats`).
    """
    with readable(path), open_unzipped(path) as file:
        lines = lines_of(file, str(path), errors)
        yield from noticing(lines, str(path)) if notice else lines


def count_lines(path: Path) -> int:
    """Counts the lines of a plain or gzip file; the last may lack its "\\n". Raises UserError if it is unreadable."""
    with readable(path), open_unzipped(path) as file:
        return sum(1 for _ in file)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raises UserError if the body cannot read the file."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged gzip file ({error}); download it again") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check the path") from None


def lines_of(file: io.BufferedReader, name: str, errors: Errors = "strict") -> Iterator[str]:
    """Like `read_lines`, for an open file of plain bytes such as standard input; messages use `name`."""
    head = file.peek(HEAD_BYTES)[:HEAD_BYTES]
    sgml = check_is_text(head, name)
    lines = _decoded(file, name, "strict" if sgml and errors == "drop" else errors)
    yield from segments(lines, name) if sgml else lines


def _decoded(file: io.BufferedReader, name: str, errors: Errors) -> Iterator[str]:
    number, decoding = 0, "strict" if errors == "drop" else errors
    while raw := file.readline(MAX_LINE_BYTES):
        number += 1
        if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
            reason, problem, remedy = TOO_LONG, f"longer than {MAX_LINE_BYTES} bytes", "is it text?"
        else:
            try:
                line = raw.removesuffix(b"\n").decode("utf-8", decoding)
                yield line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
                continue
            except UnicodeDecodeError as error:
                reason, remedy = INVALID, "convert the file"
                problem = f"not UTF-8 ({error.reason}, byte {error.start + 1} of the line)"
        if errors != "drop":
            raise UserError(f"{name}, line {number}: {problem}; {remedy}")
        while raw and not raw.endswith(b"\n"):  # the rest of a long line, in bounded memory
            raw = file.readline(MAX_LINE_BYTES)
        dropped = DroppedLine(reason)
        dropped.problem = f"{name}, line {number}: {problem}"
        yield dropped


def read_pairs(
    source: Path, target: Path, notice: bool = False, drop: Callable[[DroppedLine], None] | None = None
) -> Iterator[tuple[str, str]]:
    """Yields pairs of lines of two files; with `drop`, calls it instead with a line that is not UTF-8 or too long.

    Raises UserError like `read_lines`, and with both line counts at the end of the shorter file.
    """
    errors: Errors = "drop" if drop else "strict"
    pairs = zip_longest(read_lines(source, errors, notice), read_lines(target, errors, notice))
    for number, (source_line, target_line) in enumerate(pairs):
        if source_line is None or target_line is None:
            longer = number + 1 + sum(1 for _ in pairs)
            counts = (number, longer) if source_line is None else (longer, number)
            raise UserError(
                f"{source} has {counts[0]} lines and {target} has {counts[1]}; "
                "they must be translations of each other, line by line"
            )
        bad = source_line if isinstance(source_line, DroppedLine) else target_line
        if drop and isinstance(bad, DroppedLine):
            drop(bad)
        else:
            yield source_line, target_line


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Writes lines, gzip-compressed if the name ends in .gz; returns their number.

    The bytes depend only on the lines. Raises ValueError if a line contains "\\n".
    """
    number = 0
    with ExitStack() as stack:
        binary: Any = stack.enter_context(path.open("wb"))
        if path.suffix == ".gz":
            binary = stack.enter_context(gzip.GzipFile("", "wb", fileobj=binary, mtime=0))
        file = stack.enter_context(io.TextIOWrapper(binary, encoding="utf-8", newline="\n"))
        for number, line in enumerate(lines, 1):
            if "\n" in line:
                raise ValueError(f"line {number} for {path} contains a line feed: {line!r}")
            file.write(line + "\n")
    return number


def write_pairs(source: Path, target: Path, pairs: Iterable[tuple[str, str]]) -> int:
    """Writes two aligned plain files (`write_lines`); returns the number of pairs. No line may contain "\\n"."""
    written = 0
    with (
        source.open("w", encoding="utf-8", newline="\n") as source_file,
        target.open("w", encoding="utf-8", newline="\n") as target_file,
    ):
        for source_line, target_line in pairs:
            source_file.write(source_line + "\n")
            target_file.write(target_line + "\n")
            written += 1
    return written


def open_unzipped(path: Path) -> io.BufferedReader:
    """Opens a file's bytes, decompressed if it is gzip."""
    file = path.open("rb")
    if not file.peek(2).startswith(GZIP_MAGIC):
        return file
    unzipped: Any = gzip.GzipFile(fileobj=file, mode="rb")
    unzipped.myfileobj = file  # closed along with it
    return io.BufferedReader(unzipped)
