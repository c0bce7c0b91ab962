"""The sections of the Wall Street Journal, with generated trees in the Penn Treebank's format."""

from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

from pipeline.corpora.grammar import derive
from pipeline.text.lines import write_lines


def penn_trees(first: int = 0) -> Iterator[str]:
    """Trees of derivations from number `first` on, with the outer bracket, a function and a trace."""
    for number in count(first):
        tree = derive(7, number).tree
        yield f"( {tree.replace('(NP ', '(NP-SBJ-1 ', 1)[:-1]} (NP (-NONE- *T*-1))) )"


def make_wsj(folder: Path, trees_a_section: int = 12) -> Path:
    trees = penn_trees()
    for section in range(25):
        (folder / f"{section:02d}").mkdir(parents=True)
        write_lines(folder / f"{section:02d}" / f"wsj_{section:02d}01.mrg", islice(trees, trees_a_section))
    return folder


def make_silver(path: Path, trees: int = 60) -> Path:
    write_lines(path, (derive(8, number).tree for number in range(trees)))
    return path
