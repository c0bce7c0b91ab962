"""Splits a file of trees into pieces of equally many trees, so that many tasks can read one large file.

    pieces = cut(Path("silver.gz"), every=100_000, copy=folder / "silver")
    trees = pieces[1].read()    # trees 100,000 to 199,999; errors name lines of silver.gz

Only brackets and line ends are counted, many times as fast as parsing.
"""

from pathlib import Path

import numpy as np

from pipeline.parsing.layouts import Selection
from pipeline.parsing.trees import TRACE_TAG
from pipeline.text.lines import copied_blocks, is_gzip

_STEP = np.zeros(256, np.int8)
"""Change in the number of open brackets, by byte."""
_STEP[ord("(")], _STEP[ord(")")] = 1, -1
_IS_COUNTED = _STEP != 0
_IS_COUNTED[ord("\n")] = True


def cut(path: Path, every: int, copy: Path) -> list[Selection]:
    """Returns selections of `every` trees each (the last may be shorter); a gzip file is unzipped to `copy`.

    Returns a single selection if brackets do not match (reading it reports the error) or if trees have traces, since a
    tree of only traces yields no pair and does not count. Raises UserError if the file cannot be read.
    """
    plain = copy if is_gzip(path) else path
    pieces = [Selection(plain, 0, every, name=str(path))]
    before, n_open, overlap = np.zeros(3, np.int64), 0, b""
    """Before this block: bytes, line ends and trees; open brackets; the last bytes, which may begin a tag."""
    lines = before[:, None]
    """Lines that begin outside trees, in this block and the last before it, each with its `before`."""
    for block in copied_blocks(path, copy if plain == copy else None):
        codes = np.frombuffer(block, np.uint8)
        places = np.flatnonzero(_IS_COUNTED[codes])
        steps = _STEP[codes[places]]
        depths = np.cumsum(steps, dtype=np.int64) + n_open
        overlap = overlap[1 - len(TRACE_TAG) :] + block
        if depths.min(initial=0) < 0 or TRACE_TAG.encode() in overlap:
            return [Selection(path)]
        line_ends, tree_ends = places[steps == 0], places[(steps < 0) & (depths == 0)]
        begins = places[(steps == 0) & (depths == 0)] + 1
        counted = [begins, np.searchsorted(line_ends, begins), np.searchsorted(tree_ends, begins)]
        lines = np.hstack([lines[:, -1:], before[:, None] + counted])
        after = np.add(before, [len(block), len(line_ends), len(tree_ends)])
        for tree in range(before[2] // every * every + every, after[2] + 1, every):
            # Including the tree before, so that text between the two is read, too.
            offset, lines_before, trees_before = lines[:, np.searchsorted(lines[2], tree) - 1].tolist()
            begin = tree - trees_before
            pieces.append(Selection(plain, begin, begin + every, offset, lines_before, str(path)))
        before, n_open = after, n_open + int(steps.sum())
    pieces[-1] = pieces[-1]._replace(end=None)
    return pieces
