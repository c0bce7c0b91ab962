"""pipeline.text.formats: other formats are named with a remedy that works, and marks of other tools are noticed."""

import bz2
import gzip
import io
import lzma
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

from pipeline.errors import UserError
from pipeline.text.formats import MARKS, noticing
from pipeline.text.lines import read_lines
from tests.support.parallel_text import text_pairs

LINES = ["Два пса бегут.", "zwei Hunde laufen über die Wiese.", "", "日本語"]
TEXT = "".join(f"{line}\n" for line in LINES)


def archived(kind: str) -> bytes:
    file = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("x", TEXT)
    elif kind == "tar":
        with tarfile.open(fileobj=file, mode="w") as archive:
            entry = tarfile.TarInfo("x")
            entry.size = len(TEXT.encode())
            archive.addfile(entry, io.BytesIO(TEXT.encode()))
    else:
        pyarrow.parquet.write_table(pa.table({"COLUMN": LINES}), file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("compressed, perhaps twice", gzip.compress(each.compress(TEXT.encode()))) for each in (gzip, lzma, bz2)),
        ("compressed by Zstandard", pa.compress(TEXT.encode(), "zstd", asbytes=True)),
        ("a zip archive", archived("zip")),
        ("a tar archive", archived("tar")),
        ("Parquet", archived("parquet")),
        ("UTF-16", TEXT.encode("utf-16")),
        ("UTF-16", b"\xfe\xff" + TEXT.encode("utf-16-be")),
        ("UTF-32", TEXT.encode("utf-32")),
        ("UTF-16LE without a byte order mark", TEXT.encode("utf-16-le")),
        ("UTF-16BE without a byte order mark", TEXT.encode("utf-16-be")),
        ("UTF-32BE without a byte order mark", TEXT.encode("utf-32-be")),
        ("UTF-16LE without a byte order mark", (LINES[0] * 9).encode("utf-16-le")),
        ("a binary file", Path(sys.executable).read_bytes()[:100_000]),
        ("a web page", b"\n<!DOCTYPE html><p>404"),
        ("a pointer of Git LFS", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        ("XML", b"<?xml version='1.0'?>\n<dataset id='wmt21'><doc></doc></dataset>"),
    ],
)
def test_another_format_is_named_with_a_remedy_that_works(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / "it's x"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"x is {name}, not plain text") as caught:
        list(read_lines(path, "surrogateescape"))
    command = str(caught.value).partition("convert it: ")[2].replace("NEW", str(tmp_path / "new"))
    command = command.replace("python ", f"{sys.executable} ")
    if command and shutil.which(command.split()[0]):
        subprocess.run(command, shell=True, check=True)
        lines = list(read_lines(tmp_path / "new"))
        assert lines == LINES or lines == [LINES[0] * 9]


SGML = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE mteval SYSTEM "ftp://jaguar.ncsl.nist.gov/mt/resources/mteval-xml-v1.3.dtd">
<refset setid="newstest" srclang="any" trglang="de">
<doc sysid="ref" docid="a" genre="news" origlang="de">
<p>
<seg id="1">Zwei  Hunde laufen.</seg>
<seg id="2"></seg>
</p>
</doc>
<DOC docid="b">
<hl><seg id="1"> Über uns </seg></hl>
<p><seg id="2">Zeile
eins</seg> <seg id="3">S&amp;P &quot;500&quot;</seg></p>
</DOC>
</refset>
"""


def test_segments_of_wmt_s_sgml_are_lines(tmp_path: Path) -> None:
    """One to a line, they are those of sacreBLEU; entities are characters. Several references are an error."""
    path, theirs = tmp_path / "ref.sgm", tmp_path / "theirs"
    path.write_text(SGML)
    assert list(read_lines(path)) == ["Zwei Hunde laufen.", "", "Über uns", "Zeile eins", 'S&P "500"']
    path.write_text(SGML.partition("<DOC")[0])
    FakeSGMLDataset("x")._convert_format(str(path), str(theirs))
    assert list(read_lines(path)) == list(read_lines(theirs))
    path.write_text(SGML * 2)
    with pytest.raises(UserError, match=r"ref\.sgm holds several sets"):
        list(read_lines(path))


def test_a_segment_without_an_end_is_an_error_soon(tmp_path: Path) -> None:
    """A file that is cut off loses no segment silently, and a long one is read once, not once for each of its lines."""
    path = tmp_path / "cut.sgm"
    path.write_text(SGML.partition("Zeile")[0])
    with pytest.raises(UserError, match=r"cut\.sgm, line 12: <seg> without </seg>; the file is cut off"):
        list(read_lines(path))
    path.write_text(SGML.partition("</seg>")[0] + ("\n" + "x" * 70) * 100_000 + "</seg></refset>")
    began_s = time.process_time()
    with pytest.raises(UserError, match=r"cut\.sgm, line 6: <seg> without </seg>"):
        list(read_lines(path))
    assert time.process_time() - began_s < 5


@pytest.mark.parametrize(
    ("mark", "lines"),
    [
        ("JSON", ['{"translation": {"en": "a", "de": "b"}}', 'two columns\n["a"]', '["a", "b"]']),
        ("subword", ["das Wieder@@ auf@@ nahme", "▁das ▁Haus", "das Haus ##tür", "a@@"]),
        ("escaped", ["l&apos; homme", "Tom &amp; Jerry", "&#124;"]),
        ("columns", ["two dogs\tzwei Hunde"]),
        ("markup", ["<doc id=1>", "<p>\ntwo columns", "<url>http://x</url>"]),
        ("spaces before punctuation", ["Er läuft .", "er ist , so", "rich @-@ text"]),
    ],
)
def test_marks_of_other_tools_are_noticed(mark: str, lines: list[str], caplog: pytest.LogCaptureFixture) -> None:
    for line in lines:
        caplog.clear()
        assert list(noticing([line, "raw text."] * 3, "x")) == [line, "raw text."] * 3
        (warning,) = caplog.messages
        assert warning.startswith(f"x: 50% of 6 lines have {next(name for name in MARKS if name.startswith(mark))}")
    caplog.clear()
    list(noticing(["Two dogs run ."], "x", tokenized=False))
    assert not caplog.messages


def test_raw_text_has_no_marks(parallel_text: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("multi30k/train", "europarl_sample/train"):
        for side in zip(*text_pairs(parallel_text, name, 12_000), strict=True):
            assert list(noticing(side, name)) == list(side)
    assert not caplog.messages
