"""Streams text as lines: plain or compressed (gzip, bzip2, xz), strict UTF-8, split only at "\\n".

U+2028, U+0085, "\\r" and the like stay inside a line; `str.splitlines` and text-mode files would split there and
misalign parallel text.
"""

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pipeline.errors import UserError
from pipeline.text.formats import HEAD_BYTES, MAX_LINE_BYTES, check_is_text, noticing, segments

Errors: TypeAlias = Literal["strict", "surrogateescape", "drop"]
"""Invalid UTF-8 raises UserError, becomes surrogates that `is_utf8` finds, or makes a DroppedLine."""
BYTE_ORDER_MARK = "\ufeff"
COMPRESSIONS = {rb"\x1f\x8b": gzip.open, rb"BZh\d(1AY&SY|\x17rE8P\x90)": bz2.open, rb"\xfd7zXZ\0": lzma.open}
"""How compressed content begins, whatever the file's name, and what opens it."""
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
    """Yields the lines of a plain or compressed file without "\\n"; a leading byte order mark is dropped.

    Of WMT's SGML, yields the segments. Raises UserError, naming file and line, if the file is damaged, unreadable, of
    another format, not UTF-8 or has a line over 1 MiB; with `errors` "drop", yields a DroppedLine for such a line. With
    `notice`, warns of the marks of other tools (`pipeline.text.formats`).
    """
    with readable(path), open_unzipped(path) as file:
        lines = lines_of(file, str(path), errors)
        yield from noticing(lines, str(path)) if notice else lines


def count_lines(path: Path) -> int:
    """Counts the lines of a plain or compressed file; the last may lack its "\\n". Raises UserError like `readable`."""
    with readable(path), open_unzipped(path) as file:
        counted, last = 0, b"\n"
        while block := file.read(1 << 16):
            counted, last = counted + block.count(b"\n"), block[-1:]
        return counted + (last != b"\n")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raises UserError if the body cannot read the file."""
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if reason := getattr(error, "strerror", None):
            raise UserError(f"cannot read {path}: {reason}; check the path") from None
        raise UserError(f"{path}: damaged compressed file ({error}); download it again") from None


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
    source: Path,
    target: Path,
    errors: Errors = "strict",
    notice: bool = False,
    drop: Callable[[DroppedLine], None] | None = None,
) -> Iterator[tuple[str, str]]:
    """Yields pairs of lines of two files; or of one, named twice, with a tab between source and target.

    With `drop`, calls it instead with a line that is not UTF-8 or too long. Raises UserError like `read_lines`, with
    both line counts if they differ, and for a line without exactly one tab.
    """
    read = _columns if source.resolve() == target.resolve() else _aligned
    pairs = read(source, target, "drop" if drop else errors, notice)
    if not drop:
        yield from pairs
        return
    for source_line, target_line in pairs:
        bad = source_line if isinstance(source_line, DroppedLine) else target_line
        if isinstance(bad, DroppedLine):
            drop(bad)
        else:
            yield source_line, target_line


def _aligned(source: Path, target: Path, errors: Errors, notice: bool) -> Iterator[tuple[str, str]]:
    pairs = zip_longest(read_lines(source, errors, notice), read_lines(target, errors, notice))
    for number, (source_line, target_line) in enumerate(pairs):
        if source_line is None or target_line is None:
            longer = number + 1 + sum(1 for _ in pairs)
            counts = (number, longer) if source_line is None else (longer, number)
            raise UserError(
                f"{source} has {counts[0]} lines and {target} has {counts[1]}; "
                "they must be translations of each other, line by line"
            )
        yield source_line, target_line


def _columns(path: Path, _: Path, errors: Errors, notice: bool) -> Iterator[tuple[str, str]]:
    read = read_lines(path, errors)
    lines = (line if isinstance(line, DroppedLine) else line.replace("\t", "\n") for line in read)  # two
    for number, line in enumerate(noticing(lines, str(path)) if notice else lines, 1):
        first, *others = (line, line) if isinstance(line, DroppedLine) else line.split("\n")
        if len(others) != 1:
            one = "one between source and target; keep two columns, e.g. by cut -f1,2, or name two files"
            raise UserError(f"{path}, line {number}: {len(others)} tabs instead of {one}")
        yield first, others[0]


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Writes lines; returns their number. Raises ValueError if a line contains "\\n"."""
    number = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(lines, 1):
            if "\n" in line:
                raise ValueError(f"line {number} for {path} contains a line feed: {line!r}")
            file.write(line + "\n")
    return number


def write_pairs(source: Path, target: Path, pairs: Iterable[tuple[str, str]]) -> int:
    """Writes two aligned plain files (`write_lines`); returns the number of pairs. No line may contain "\\n"."""
    written, opened = 0, partial(open, mode="w", encoding="utf-8", errors="surrogateescape", newline="\n")
    with opened(source) as source_file, opened(target) as target_file:
        for source_line, target_line in pairs:
            source_file.write(source_line + "\n")
            target_file.write(target_line + "\n")
            written += 1
    return written


def plain_bytes(path: Path) -> int:
    """Returns the size of a file's text, by real text's usual ratio if the file is compressed."""
    with open_unzipped(path) as file:
        return path.stat().st_size * (1 if isinstance(file.raw, io.FileIO) else 4)


@contextmanager
def open_unzipped(path: Path) -> Iterator[io.BufferedReader]:
    """Opens a file's bytes, decompressed if they are compressed."""
    with path.open("rb") as file:
        unzip: Any = next((each for magic, each in COMPRESSIONS.items() if re.match(magic, file.peek(10))), None)
        with io.BufferedReader(unzip(file)) if unzip else file as opened:
            yield opened
