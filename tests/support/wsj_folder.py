"""The sections of the Wall Street Journal, with generated trees in the Penn Treebank's format."""

from itertools import count, islice
from pathlib import Path

from pipeline.corpora.grammar import derive
from pipeline.text.lines import write_lines


def make_wsj(folder: Path, trees_a_section: int = 12) -> Path:
    """Trees have the outer bracket, a function and a trace."""
    derived = (derive(7, number).tree.replace("(NP ", "(NP-SBJ-1 ", 1) for number in count())
    trees = (f"( {tree[:-1]} (NP (-NONE- *T*-1))) )" for tree in derived)
    for section in range(25):
        (folder / f"{section:02d}").mkdir(parents=True)
        write_lines(folder / f"{section:02d}" / f"wsj_{section:02d}01.mrg", islice(trees, trees_a_section))
    return folder


def make_silver(path: Path, trees: int = 60) -> Path:
    write_lines(path, (derive(8, number).tree for number in range(trees)))
    return path
