"""pipeline.text.lines: the definition of a line, and errors for files that are not text."""

import bz2
import gzip
import lzma
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.text.lines import count_lines, plain_bytes, read_lines, read_pairs, write_lines

PACKS = gzip.compress, bz2.compress, lzma.compress
LINE = st.text(st.characters(exclude_characters="\n\ufeff\0", codec="utf-8"))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(LINE))
def test_any_lines_come_back(tmp_path: Path, lines: list[str]) -> None:
    """A line may contain anything but a line feed, even U+2028, U+0085, form feed or "\\r", and is read as written."""
    assert write_lines(tmp_path / "lines", lines) == len(lines)
    assert list(read_lines(tmp_path / "lines")) == lines


@pytest.mark.parametrize("pack", PACKS)
def test_compressed_files_are_read_by_their_content(tmp_path: Path, parallel_text: Path, pack: Any) -> None:
    """Several streams are one text. Plain text may begin like bzip2's. The size is estimated to a third."""
    real = gzip.decompress((parallel_text / "europarl_sample" / "train.de.gz").read_bytes())
    for content in (real, b"", b"BZh91 is no compressed line\nb\x85c\xe4\n"):
        for packed in (content * 2, pack(content) * 2):
            (tmp_path / "x").write_bytes(packed)
            lines = content.decode(errors="surrogateescape").split("\n")[:-1]
            assert list(read_lines(tmp_path / "x", "surrogateescape")) == lines * 2
            assert content != real or plain_bytes(tmp_path / "x") == pytest.approx(2 * len(real), rel=0.34)


def test_only_line_feeds_split(tmp_path: Path) -> None:
    """Other separators of `str.splitlines` stay, the last line needs no end, and a byte order mark is dropped."""
    path = tmp_path / "x"
    path.write_bytes("\ufeffa\u2028b\x85c\r\n\n\x0bd\re\n\0f\0\n\0g\0\0h".encode())
    assert list(read_lines(path)) == ["a\u2028b\x85c\r", "", "\x0bd\re", "\0f\0", "\0g\0\0h"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good\nb\xffd\n", r"x, line 2: not UTF-8 \(invalid start byte, byte 2 of the line\)"),
        (b"a" * (1 << 20) + b"b\n", "line 1: longer than 1048576 bytes"),
        *((pack(os.urandom(99_000).hex().encode())[:-30_000], "damaged .*ended before") for pack in PACKS),
        (gzip.compress(b"a\n")[:-8] + b"\0" * 8, "damaged .*CRC"),
        (lzma.compress(b"a\n")[:-40] + b"\0" * 40, "damaged .*orrupt"),
    ],
    ids=["latin-1", "no line ends", "cut gz", "cut bz2", "cut xz", "wrong gz", "wrong xz"],
)
def test_what_is_not_text_is_named_with_file_and_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        list(read_lines(tmp_path / "x"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("n_source", "n_target"), [(3, 5), (5, 3), (0, 1)])
def test_unequal_sides_are_reported_with_both_counts(tmp_path: Path, n_source: int, n_target: int) -> None:
    source, target = tmp_path / "s", tmp_path / "t"
    write_lines(source, ["a"] * n_source)
    write_lines(target, ["b"] * n_target)
    with pytest.raises(UserError, match=f"s has {n_source} lines and .*t has {n_target};"):
        list(read_pairs(source, target))


def test_reading_streams(tmp_path: Path) -> None:
    """Memory does not grow with the file: 20 MB are read within 1 MB."""
    (tmp_path / "x.gz").write_bytes(gzip.compress((b"a line of text " * 10 + b"\n") * 140_000))
    (tmp_path / "y.gz").write_bytes(gzip.compress(bytes(20_000_000)))
    tracemalloc.start()
    try:
        assert [count_lines(tmp_path / name) for name in ("x.gz", "y.gz")] == [140_000, 1]
        assert sum(1 for _ in read_lines(tmp_path / "x.gz")) == 140_000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
