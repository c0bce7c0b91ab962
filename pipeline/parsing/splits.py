"""Locates the trees of each split in a treebank's files (§6.3). Supported layouts:

- the Wall Street Journal by sections, `00/wsj_0001.mrg` to `24/wsj_2499.mrg`, plain or .gz, in the folder itself, in
  `wsj/` or in `parsed/mrg/wsj/`: train is sections 2 to 21, dev 22 and test 23, as in the paper;
- a folder of `.mrg` or `.mrg.gz` files, and `files.tsv` with the name and number of trees of each text in them, in
  order: texts that begin in the first 80% of the trees are train, in the next 10% dev, in the rest test;
- a single file: the first 80% of its trees are train, the next 10% dev, the rest test.
"""

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple

from pipeline.errors import UserError
from pipeline.parsing.trees import PlacedTree, read_trees
from pipeline.text.lines import read_lines

log = logging.getLogger(__name__)

SPLITS = ("train", "dev", "test")
SECTIONS = {"train": [f"{section:02d}" for section in range(2, 22)], "dev": ["22"], "test": ["23"]}
"""Sections of the Wall Street Journal (§6.3: training on the WSJ portion, choices on section 22, results on 23)."""
SECTION_FOLDERS = (".", "wsj", "parsed/mrg/wsj")
FILES_TABLE = "files.tsv"
TRAIN_TENTHS, DEV_TENTHS = 8, 1


class Selection(NamedTuple):
    """Trees number `begin` to `end` (exclusive) of a file; None: to the end."""

    path: Path
    begin: int = 0
    end: int | None = None

    def read(self) -> Iterator[PlacedTree]:
        """Yields the trees. Raises UserError."""
        yield from islice(read_trees(self.path), self.begin, self.end)


def splits_of(treebank: Path) -> dict[str, list[Selection]]:
    """Returns the trees of each split. Raises UserError if the treebank has no known layout."""
    files = files_of(treebank)
    present = _sections_of(files)
    if present:
        missing = [section for sections in SECTIONS.values() for section in sections if section not in present]
        if missing:
            log.warning("%s has no section %s; the paper's treebank has", treebank, ", ".join(missing))
        return {split: [Selection(path) for path in files_behind(treebank, split).values()] for split in SPLITS}
    paths = [path for name, path in files.items() if name != FILES_TABLE]
    trees = [sum(1 for _ in read_trees(path)) for path in paths]
    texts = _texts(files[FILES_TABLE]) if FILES_TABLE in files else [1] * sum(trees)
    begins = [0, *accumulate(texts)]
    if begins[-1] != sum(trees):
        raise UserError(
            f"{files[FILES_TABLE]} counts {begins[-1]} trees, but the .mrg files of {treebank} hold {sum(trees)}; "
            "correct the table"
        )
    tenths = accumulate((TRAIN_TENTHS, DEV_TENTHS))
    bounds = [0, *(begins[bisect_left(begins, begins[-1] * part / 10)] for part in tenths), begins[-1]]
    return {split: _between(paths, trees, *bounds[i : i + 2]) for i, split in enumerate(SPLITS)}


def files_of(treebank: Path) -> dict[str, Path]:
    """Returns a treebank's files in order, by names without its folder. Raises UserError for an unknown layout."""
    if treebank.is_file():
        return {"": treebank}
    if (treebank / FILES_TABLE).is_file():
        return {**_bracketed_files(treebank), FILES_TABLE: treebank / FILES_TABLE}
    for below in SECTION_FOLDERS:
        folders = sorted(path for path in (treebank / below).glob("[0-2][0-9]") if path.is_dir())
        files = {f"{folder.name}/{name}": file for folder in folders for name, file in _bracketed_files(folder).items()}
        if all(any(f"{sections[-1]}/" == name[:3] for name in files) for sections in SECTIONS.values()):
            return files
    raise UserError(
        f"{treebank} is not a treebank: it must be a file of bracketed trees, or a folder with {FILES_TABLE} and .mrg "
        "files, or with the sections 00 to 24 of the Wall Street Journal (21, 22 and 23 at least)"
    )


def files_behind(treebank: Path, split: str) -> dict[str, Path]:
    """Returns the files that determine a split, by their names in `files_of`: the files of its sections.

    Without sections these are all files, since splitting counts their trees. Raises UserError like `files_of`.
    """
    files = files_of(treebank)
    if not _sections_of(files):
        return files
    return {name: path for name, path in files.items() if Path(name).parent.name in SECTIONS[split]}


def _sections_of(files: Iterable[str]) -> set[str]:
    """Returns the sections of the files; none in other layouts."""
    return {Path(name).parent.name for name in files} - {""}


def _bracketed_files(folder: Path) -> dict[str, Path]:
    """Returns a folder's .mrg and .mrg.gz files by name without .gz; a plain file takes precedence."""
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.name.endswith((".mrg", ".mrg.gz")):
            files.setdefault(path.name.removesuffix(".gz"), path)
    return files


def _texts(table: Path) -> list[int]:
    """Returns the number of trees of each text. Raises UserError for a malformed line."""
    sizes = []
    for number, line in enumerate(read_lines(table), 1):
        match line.split("\t"):
            case [_, size] if size.strip().isdecimal():
                sizes.append(int(size))
            case _:
                raise UserError(f"{table}, line {number}: {line!r} is not a name, a tab and a number of trees")
    return sizes


def _between(paths: Sequence[Path], trees: Sequence[int], begin: int, end: int) -> list[Selection]:
    """Selects trees `begin` to `end`, counted through files with `trees` trees each."""
    selections, before = [], 0
    for path, size in zip(paths, trees, strict=True):
        first, last = max(begin - before, 0), min(end - before, size)
        if first < last:
            selections.append(Selection(path, first, last))
        before += size
    return selections
