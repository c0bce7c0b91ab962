"""Reads a treebank as a corpus: words as source, linearised trees as target (§6.3), with the gold trees for scoring.

Three layouts are recognised:

- the Wall Street Journal by sections, `00/wsj_0001.mrg` to `24/wsj_2499.mrg`, plain or .gz, in the folder itself, in
  `wsj/` or in `parsed/mrg/wsj/`: sections 2 to 21 train, 22 is dev and 23 test, as in the paper;
- a folder of `.mrg` or `.mrg.gz` files and `files.tsv`, which names the texts in them, in order, each with its number
  of trees: texts that begin in the first 80% of the trees train, those in the next 10% are dev, the others test;
- a single file: the first 80% of its trees train, the next 10% are dev, the others test.

Automatically parsed trees (`silver`) follow the training split of the treebank: the paper's semi-supervised setting.
They are streamed, however many there are, and their labels must be those of the treebank's own training trees.
"""

import hashlib
import logging
import shutil
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from pydantic import field_validator

from pipeline.errors import UserError
from pipeline.parsing.linearisation import linearise
from pipeline.parsing.symbols import WORD_SYMBOL
from pipeline.parsing.trees import PlacedTree, bracketed, cleaned, read_trees, words_of
from pipeline.settings import Settings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus
from pipeline.text.aligned import SHARD_PAIRS, content_sha256, move_shards, write_shards
from pipeline.text.lines import read_lines, write_lines

log = logging.getLogger(__name__)

LANGUAGES = ("en", "trees")
SPLITS = ("train", "dev", "test")
SECTIONS = {"train": [f"{section:02d}" for section in range(2, 22)], "dev": ["22"], "test": ["23"]}
"""Sections of the Wall Street Journal (§6.3: training on the WSJ portion, choices on section 22, results on 23)."""
SECTION_FOLDERS = (".", "wsj", "parsed/mrg/wsj")
FILES_TABLE = "files.tsv"
TRAIN_TENTHS, DEV_TENTHS = 8, 1
GOLD_COLLECTION = "treebank"


class TreebankSettings(Settings):
    """The treebank and automatically parsed trees."""

    treebank: Path
    """A folder in one of the layouts above, or a file."""
    silver: tuple[Path, ...] = ()
    """Files of automatically parsed trees, plain or gzip."""

    @field_validator("treebank")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        return path.expanduser().absolute()  # the stage may run in another working directory

    @field_validator("silver")
    @classmethod
    def _all_absolute(cls, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(path.expanduser().absolute() for path in paths)

    def identity(self) -> dict[str, Any]:
        """Depends on the content of the files, not on their folders. Raises UserError if one cannot be read."""
        digest = hashlib.sha256()
        for name, path in _files(self.treebank).items():
            digest.update(f"{name} {content_sha256(path)}\n".encode())
        return {"treebank": digest.hexdigest(), "silver": [content_sha256(path) for path in self.silver]}


class Selection(NamedTuple):
    """The trees of a file from number `begin` to `end`, exclusive; None for all that follow."""

    path: Path
    begin: int = 0
    end: int | None = None

    def read(self) -> Iterator[PlacedTree]:
        """Yields the trees. Raises UserError."""
        return islice(read_trees(self.path), self.begin, self.end)


class PartReport(NamedTuple):
    """What was read into one part of the corpus."""

    shards: list[int]
    """Pairs of each shard."""
    words: int
    without_words: int
    """Trees left out because they hold no word."""
    places: dict[str, str]
    """The symbols that occur, each with the file and line of the first tree that has it."""


def read(context: Context, settings: TreebankSettings) -> Corpus:
    """Reads train, with the silver trees after the gold ones, dev and test; one call of `context.map` per part.

    Besides the pairs, the folder holds `symbols.txt`, the symbols of the gold training trees, and the gold trees of dev
    and test. The report is {"read", "words", "without_words": numbers of pairs, words and trees left out, in each
    split, "silver": pairs, "unseen_symbols": those of dev and test that no training tree has}. Raises UserError if the
    treebank has no known layout or a tree is wrong, or if a silver tree has a label that no gold training tree has.
    """
    corpus, parts_folder = Corpus(context.folder), context.folder / "parts"
    selections = splits_of(settings.treebank)
    calls: list[tuple[str, Sequence[Selection], Corpus, frozenset[str] | None]] = [
        (split, selections[split], Corpus(parts_folder / split), None) for split in SPLITS
    ]
    n_parts = len(calls) + len(settings.silver)
    reports: list[PartReport] = []
    for report in context.map(read_part, calls):
        reports.append(report)
        context.progress(len(reports), n_parts, "parts")
    train = reports[0]
    known = frozenset([WORD_SYMBOL, *train.places])
    for i, path in enumerate(settings.silver):
        calls.append(("train", [Selection(path)], Corpus(parts_folder / f"silver-{i:05d}"), known))
    for report in context.map(read_part, calls[len(SPLITS) :]):
        reports.append(report)
        context.progress(len(reports), n_parts, "parts")
    splits: dict[str, list[int]] = {split: [] for split in SPLITS}
    counts = {name: dict.fromkeys(SPLITS, 0) for name in ("read", "words", "without_words")}
    unseen: dict[str, list[str]] = {}
    for (split, _, part, _), report in zip(calls, reports, strict=True):
        move_shards(part, corpus, split, LANGUAGES, report.shards, splits[split])
        counts["read"][split] += sum(report.shards)
        counts["words"][split] += report.words
        counts["without_words"][split] += report.without_words
        if split != "train":
            part.gold_trees(split).rename(corpus.gold_trees(split))
            unseen[split] = sorted(report.places.keys() - known)
            for symbol in unseen[split]:
                log.warning("%s: no training tree has the symbol %s", report.places[symbol], symbol)
    for split, pairs in counts["read"].items():
        if not pairs:
            raise UserError(f"{settings.treebank} has no tree with a word for {split!r}; give a larger treebank")
    shutil.rmtree(parts_folder)
    write_lines(corpus.symbols_path, sorted(known))
    silver = reports[len(SPLITS) :]
    collections = [GOLD_COLLECTION] * len(train.shards)
    for path, report in zip(settings.silver, silver, strict=True):
        collections += [path.name] * len(report.shards)
    described = {**counts, "silver": sum(sum(report.shards) for report in silver), "unseen_symbols": unseen}
    corpus.describe(LANGUAGES, splits, described, collections)
    return corpus


def read_part(split: str, selections: Sequence[Selection], part: Corpus, known: frozenset[str] | None) -> PartReport:
    """Reads trees into shards of a split of `part`, and the gold trees of dev and test into a file of their own.

    `known` lists the symbols that may occur; None for any. Raises UserError, with file and line, for another.
    """
    shutil.rmtree(part.folder, ignore_errors=True)  # left by an attempt that was killed
    part.folder.mkdir(parents=True)
    counts: Counter[str] = Counter()
    places: dict[str, str] = {}

    def pairs(gold: TextIO) -> Iterator[tuple[str, str]]:
        for placed in chain.from_iterable(selection.read() for selection in selections):
            tree = cleaned(placed.tree)
            if tree is None:
                counts["without_words"] += 1
                continue
            words, symbols = words_of(tree), linearise(tree)
            if new := set(symbols) - places.keys():
                if known is not None and new - known:
                    label = min(new - known)[1:]
                    raise UserError(f"{placed.place}: no training tree of the treebank has the label {label!r}")
                places.update(dict.fromkeys(new, placed.place))
            counts["words"] += len(words)
            if split != "train":
                gold.write(bracketed(tree) + "\n")
            yield " ".join(words), " ".join(symbols)

    with part.gold_trees(split).open("w", encoding="utf-8", newline="\n") as gold:
        shards = write_shards(part, split, LANGUAGES, pairs(gold), SHARD_PAIRS)
    return PartReport(shards, counts["words"], counts["without_words"], places)


def splits_of(treebank: Path) -> dict[str, list[Selection]]:
    """Returns the trees of each split. Raises UserError if the treebank has none of the known layouts."""
    files = _files(treebank)
    if SECTIONS["test"][0] in {Path(name).parent.name for name in files}:
        by_section: dict[str, list[Selection]] = {}
        for name, path in files.items():
            by_section.setdefault(Path(name).parent.name, []).append(Selection(path))
        missing = [section for sections in SECTIONS.values() for section in sections if section not in by_section]
        if missing:
            log.warning("%s has no section %s; the paper's treebank has", treebank, ", ".join(missing))
        return {
            split: [one for section in sections for one in by_section.get(section, [])]
            for split, sections in SECTIONS.items()
        }
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


def _files(treebank: Path) -> dict[str, Path]:
    """Returns the files that a treebank consists of, by a name that does not depend on its folder, in order.

    Raises UserError if it has none of the known layouts.
    """
    if treebank.is_file():
        return {"": treebank}
    if (treebank / FILES_TABLE).is_file():
        return {**_bracketed_files(treebank), FILES_TABLE: treebank / FILES_TABLE}
    for below in SECTION_FOLDERS:
        folders = sorted(path for path in (treebank / below).glob("[0-2][0-9]") if path.is_dir())
        found = {f"{folder.name}/{name}": file for folder in folders for name, file in _bracketed_files(folder).items()}
        if all(any(f"{sections[-1]}/" == name[:3] for name in found) for sections in SECTIONS.values()):
            return found
    raise UserError(
        f"{treebank} is no treebank: it needs to be a file of bracketed trees, or a folder with {FILES_TABLE} and .mrg "
        "files, or with the sections 00 to 24 of the Wall Street Journal (21, 22 and 23 at least)"
    )


def _bracketed_files(folder: Path) -> dict[str, Path]:
    """Returns the .mrg and .mrg.gz files of a folder by their names without .gz; a plain file goes before its .gz."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.name.endswith((".mrg", ".mrg.gz")):
            found.setdefault(path.name.removesuffix(".gz"), path)
    return found


def _texts(table: Path) -> list[int]:
    """Returns the number of trees of each text. Raises UserError for a line that is not a name, a tab and a number."""
    sizes = []
    for number, line in enumerate(read_lines(table), 1):
        match line.split("\t"):
            case [_, size] if size.strip().isdecimal():
                sizes.append(int(size))
            case _:
                raise UserError(f"{table}, line {number}: {line!r} is not a name, a tab and a number of trees")
    return sizes


def _between(paths: Sequence[Path], trees: Sequence[int], begin: int, end: int) -> list[Selection]:
    """Selects trees `begin` to `end`, counted through files that hold `trees` each."""
    selections, before = [], 0
    for path, size in zip(paths, trees, strict=True):
        first, last = max(begin - before, 0), min(end - before, size)
        if first < last:
            selections.append(Selection(path, first, last))
        before += size
    return selections
