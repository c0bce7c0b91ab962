"""Splits aligned files into pieces of equally many lines, so that many tasks can copy one large file.

lines, *offsets = cut(path, every=100_000)      # counts bytes, decodes nothing

Pieces are copied in blocks of bytes. Only an unusual piece is read line by line, to report the bad line of the file or
find that all is well.
"""

import codecs
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from pathlib import Path

from pipeline.errors import UserError
from pipeline.store.remembered import remembered
from pipeline.text.lines import (
    BLOCK_BYTES,
    BYTE_ORDER_MARK,
    UTF_16,
    Errors,
    copied_blocks,
    is_gzip,
    lines_of,
    read_blocks,
    readable,
    write_pairs,
)

MARK = BYTE_ORDER_MARK.encode()


@dataclass(frozen=True)
class Piece:
    """Consecutive lines of a file."""

    path: Path
    """The file or its unzipped copy."""
    name: str
    """The file's name in messages."""
    begin: int
    end: int
    """Byte offsets of the first line and the end of the last."""
    lines_before: int
    lines: int


def cut(path: Path, every: int, copy: Path | None = None) -> list[int]:
    """Returns a file's number of lines, the offset of every `every`-th line and the size, both unzipped.

    Writes the unzipped bytes to `copy`. Raises UserError if the file is unreadable or damaged gzip.
    """
    import numpy as np

    lines, size, offsets, block = 0, 0, [0], b"\n"
    for block in copied_blocks(path, copy):
        feeds = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        offsets += (feeds[-(lines + 1) % every :: every] + (size + 1)).tolist()
        lines, size = lines + len(feeds), size + len(block)
    return [lines + (not block.endswith(b"\n")), *offsets, *([size] if offsets[-1] < size else [])]


def remembered_cut(path: Path, every: int) -> list[int]:
    """Cached `cut` (`remembered`). Also raises OSError."""
    return remembered(path, f"cut-{every}-1", partial(cut, every=every), list)


def pieces_of(path: Path, every: int, copy: Path) -> list[Piece]:
    """Splits a file into pieces of `every` lines, unzipping a gzip file to the temporary file `copy`.

    Raises UserError if the file is unreadable or damaged gzip.
    """
    if is_gzip(path):
        plain, (lines, *offsets) = copy, cut(path, every, copy)
    else:
        plain, (lines, *offsets) = path, (cut if copy.parent in path.parents else remembered_cut)(path, every)
    edges = [*range(0, lines, every), lines]
    return [
        Piece(plain, str(path), begin, end, before, after - before)
        for (begin, end), (before, after) in zip(pairwise(offsets), pairwise(edges), strict=True)
    ]


def copy_piece(source: Piece, target: Piece, errors: Errors, paths: Sequence[Path]) -> None:
    """Writes both sides of a piece to new files; equals `write_pairs` of `read_pairs`.

    Raises UserError like `read_pairs`, naming file and line.
    """
    if not all([_is_copied(source, errors, paths[0]), _is_copied(target, errors, paths[1])]):
        pairs = zip(_lines(source, errors), _lines(target, errors), strict=False)
        if write_pairs(paths[0], paths[1], pairs) != source.lines:
            raise _changed(source)


def _is_copied(piece: Piece, errors: Errors, path: Path) -> bool:
    """Copies a piece in blocks; returns False as soon as its lines must be examined individually."""
    decoder, feeds, block = codecs.getincrementaldecoder("utf-8")(errors), 0, b""
    with path.open("wb") as copy, suppress(UnicodeDecodeError):
        for number, block in enumerate(read_blocks(piece.path, piece.begin, piece.end - piece.begin)):
            if not number:
                if not piece.begin and block.startswith(UTF_16):
                    return False
                block = block if piece.begin else block.removeprefix(MARK)
                copy.write(MARK if block.startswith(MARK) else b"")
            feeds_here = block.count(b"\n")
            if not feeds_here and len(block) == BLOCK_BYTES:  # the line may be too long
                return False
            decoder.decode(block)
            copy.write(block)
            feeds += feeds_here
        decoder.decode(b"", final=True)
        if not block.endswith(b"\n"):  # the last line of the file
            copy.write(b"\n")
            feeds += 1
        if feeds != piece.lines:
            raise _changed(piece)
        return True
    return False


def _changed(piece: Piece) -> UserError:
    return UserError(f"{piece.name} changed while it was read; run the same command again")


def _lines(piece: Piece, errors: Errors) -> Iterator[str]:
    with readable(piece.path), piece.path.open("rb") as file:
        file.seek(piece.begin)
        yield from islice(lines_of(file, piece.name, errors, piece.lines_before), piece.lines)
