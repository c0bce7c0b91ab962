"""Recognises what is not plain text, and text that other tools have prepared; reads WMT's SGML."""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from html import unescape
from itertools import islice
from pathlib import Path
from shlex import quote

from pipeline.errors import UserError

log = logging.getLogger(__name__)

HEAD_BYTES = 4096
"""Bytes at the beginning of a file that decide its format."""
MAX_LINE_BYTES = 1 << 20
"""Maximum line length; anything longer is not text, and would break the bound on memory."""
_PARQUET = """python -c 'import sys, pyarrow.parquet as p; print(*p.read_table(sys.argv[1])["COLUMN"], sep="\\n")' {}"""
FORMATS = (
    (rb"\x1f[\x8b\x9d]|\xfd7zXZ\0|BZh\d1AY&SY", "compressed, perhaps twice", "unpack it: gzip, bzip2 or xz, -dc"),
    (rb"\x28\xb5\x2f\xfd", "compressed by Zstandard", "convert it: zstd -dc {} > NEW"),
    (rb"\x04\x22\x4d\x18", "compressed by LZ4", "convert it: lz4 -dc {} > NEW"),
    (rb"PK\x03\x04", "a zip archive", "convert it: unzip -p {} > NEW"),
    (rb"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "convert it: 7z x -so {} > NEW"),
    (rb"(?s).{257}ustar", "a tar archive", "convert it: tar -xOf {} > NEW"),
    (rb"PAR1[\0-\x1f]", "Parquet", f"convert it: {_PARQUET} > NEW"),
    (rb"%PDF-", "PDF", "convert it: pdftotext {} NEW"),
    (rb"\xff\xfe\0\0|\0\0\xfe\xff", "UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 {} > NEW"),
    (rb"\xff\xfe|\xfe\xff", "UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 {} > NEW"),
    (rb"version https://git-lfs", "a pointer of Git LFS", "run git lfs pull where it comes from"),
    (rb"(?i)\s*<(!doctype )?html", "a web page", "download the file itself"),
    (rb"(\xef\xbb\xbf)?\s*<(\?xml|tmx|xliff)", "XML", "extract its sentences, one a line"),
)
"""Other formats: how their content begins, their name, and what to do."""
_SGML = re.compile(rb"(?i)(\xef\xbb\xbf)?\s*(<[?!][^>]*>\s*)*<(mteval|srcset|refset|tstset)\b")
_SET = re.compile("(?i)<(?:src|ref|tst)set")
_SEGMENT = re.compile("(?is)<seg[^>]*>(.*?)</seg>")

NOTICED_LINES, NOTICED_SHARE = 10_000, 0.01
"""Lines that are searched for marks, and the share with a mark from which on a warning is due."""
TOKENIZED = "spaces before punctuation, or Moses' @-@"
MARKS = {
    "JSON": re.compile(r'(?m)^\s*[{\[]\s*["{\[].*[}\]],?\s*$'),
    "subword pieces (@@, ▁, ##)": re.compile(r"@@(?!\S)|▁|##\w"),
    "escaped characters such as &quot;": re.compile(r"(?i)&(apos|quot|amp|lt|gt|nbsp|#\d+|#x[\da-f]+);"),
    "columns separated by tabs": re.compile(r"\t\S"),
    "markup such as <doc>": re.compile(r"(?m)^\s*<\w.*>\s*$"),
    TOKENIZED: re.compile(r" (?:@[-/.,]@|[.,](?!\S))"),
}
"""Marks of other tools' formats and preparation."""


def check_is_text(head: bytes, name: str) -> bool:
    """Returns whether a file that begins with `head` is WMT's SGML of a source, references or translations.

    Raises UserError, with a remedy, if it is clearly not UTF-8 text.
    """
    if _SGML.match(head):
        return True
    for begins, format_name, remedy in FORMATS:
        if re.match(begins, head):
            raise _other_format(name, format_name, remedy)
    few, many = sorted(zeros := [head[i::2].count(0) for i in (0, 1)])
    order, line_end = ("BE", b"\0\n") if zeros[0] > zeros[1] else ("LE", b"\n\0")
    # At least every 20th character is a space, digit or Latin letter. A stray NUL is rarely at a line end.
    if many > max(2, len(head) / 40) and head.count(line_end) >= 0.9 * head.count(b"\n"):
        encoding = f"UTF-{32 if few > len(head) / 5 else 16}{order}"
        if "\ufffd" in head[: len(head) // 4 * 4].decode(encoding, "replace"):
            raise _other_format(name, "a binary file", "name a file of text")
        remedy = f"convert it: iconv -f {encoding} -t UTF-8 {{}} > NEW"
        raise _other_format(name, f"{encoding} without a byte order mark", remedy)
    return False


def _other_format(name: str, format_name: str, remedy: str) -> UserError:
    file = quote(name) if Path(name).exists() else "FILE"
    return UserError(f"{name} is {format_name}, not plain text in UTF-8; {remedy.replace('{}', file)}")


def segments(lines: Iterable[str], name: str) -> Iterator[str]:
    """Yields the segments of WMT's SGML as lines. Raises UserError if it holds several sets or is cut off in one."""
    text, begun, sets = "", 0, 0
    for number, line in enumerate(lines, 1):
        sets += len(_SET.findall(line))
        if sets > 1:
            raise UserError(f"{name} holds several sets, such as two references; keep one")
        begun = begun or number * ("<seg" in line.lower())
        text += f"{line}\n" if begun else ""
        if "</seg>" in line.lower():
            end = 0
            for segment in _SEGMENT.finditer(text):
                yield " ".join(unescape(segment[1]).split())
                end = segment.end()
            begun = number * ("<seg" in text[end:].lower())
            text = text[end:] if begun else ""
        if len(text) > MAX_LINE_BYTES:
            break
    if begun:
        raise UserError(f"{name}, line {begun}: <seg> without </seg>; the file is cut off: download it again")


def noticing(lines: Iterable[str], name: str, tokenized: bool = True) -> Iterator[str]:
    """Yields the lines; warns of MARKS in the first, except where text is `tokenized` on purpose."""
    lines, counts = iter(lines), Counter[str]()
    marks = {mark: pattern for mark, pattern in MARKS.items() if tokenized or mark != TOKENIZED}
    for line in islice(lines, NOTICED_LINES):
        counts.update(["", *(mark for mark, pattern in marks.items() if pattern.search(line))])
        yield line
    number = counts.pop("", 0)
    for mark, count in counts.items():
        if (share := count / number) >= NOTICED_SHARE:
            log.warning("%s: %.0f%% of %d lines have %s; scores need raw text", name, 100 * share, number, mark)
    yield from lines
