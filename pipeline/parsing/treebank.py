"""Reads a treebank as a corpus: words as source, linearised trees as target (§6.3), with the gold trees for scoring.

Automatically parsed trees (`silver`) follow the training split of the treebank: the paper's semi-supervised setting.
They are streamed, however many there are, and their labels must be those of the treebank's own training trees. Trees
that are made of the treebank's own constituents (`pipeline.parsing.recombination`) come last.
"""

import hashlib
import logging
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, TextIO

from pipeline.errors import UserError
from pipeline.parsing.layouts import SPLITS, Selection, files_of, splits_of
from pipeline.parsing.linearisation import WORD_SYMBOL, linearise, one_word, tag_of
from pipeline.parsing.recombination import Recombination, RecombinationSettings
from pipeline.parsing.trees import PlacedTree, bracketed, cleaned, words_of
from pipeline.settings import AbsolutePath, Settings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus
from pipeline.text.aligned import SHARD_PAIRS, content_sha256, move_shards, write_shards
from pipeline.text.lines import write_lines

log = logging.getLogger(__name__)

LANGUAGES = ("en", "trees")
GOLD_COLLECTION, RECOMBINED_COLLECTION = "treebank", "recombined"
PART_TREES = 20_000
"""Recombined trees that one call makes."""


class TreebankSettings(Settings):
    """The treebank and automatically parsed trees."""

    treebank: AbsolutePath
    """A folder in one of the layouts of `pipeline.parsing.layouts`, or a file."""
    silver: tuple[AbsolutePath, ...] = ()
    """Files of automatically parsed trees, plain or gzip."""
    write_tags: bool = False
    """Write a word with its part-of-speech tag, "XX/NNP", instead of "XX"."""
    recombination: RecombinationSettings | None = None
    """Further training trees, made of the treebank's constituents."""

    def identity(self) -> dict[str, Any]:
        """Depends on the content of the files, not on their folders. Raises UserError if one cannot be read."""
        digest = hashlib.sha256()
        for name, path in files_of(self.treebank).items():
            digest.update(f"{name} {content_sha256(path)}\n".encode())
        identity: dict[str, Any] = {
            "treebank": digest.hexdigest(),
            "silver": [content_sha256(path) for path in self.silver],
        }
        if self.write_tags:
            identity["write_tags"] = True
        return identity | ({"recombination": self.recombination.identity()} if self.recombination else {})


class PartReport(NamedTuple):
    """What was read into one part of the corpus."""

    shards: list[int]
    """Pairs of each shard."""
    words: int
    without_words: int
    """Trees left out because they hold no word."""
    places: dict[str, str]
    """The symbols that occur, each with the file and line of the first tree that has it."""


class Part(NamedTuple):
    """What one call of `read_part` reads, into a folder of its own."""

    folder: Corpus
    split: str
    trees: Sequence[Selection | Recombination]
    collection: str
    with_tags: bool
    known: frozenset[str] | None = None
    """The symbols that may occur; None for any."""


def read(context: Context, settings: TreebankSettings) -> Corpus:
    """Reads train, with silver and recombined trees after the gold ones, dev and test; `context.map` calls per part.

    Besides the pairs, the folder holds `symbols.txt`, the symbols of the gold training trees, and the gold trees of dev
    and test. The report is {"read", "words", "without_words": numbers of pairs, words and trees left out, in each
    split, "silver": pairs, "recombined": pairs, where trees are, "unseen_symbols": those of dev and test that no
    training tree has}. Raises UserError if the treebank has no known layout or a tree is wrong, or if a silver tree has
    a label that no gold training tree has.
    """
    corpus = Corpus(context.folder)
    selections = splits_of(settings.treebank)
    gold = [
        Part(Corpus(corpus.parts / split), split, selections[split], GOLD_COLLECTION, settings.write_tags)
        for split in SPLITS
    ]
    more = list(_more_sources(settings, selections["train"]))
    reports: list[PartReport] = []

    def read_parts(parts: Sequence[Part]) -> None:
        for report in context.map(read_part, [(part,) for part in parts]):
            reports.append(report)
            context.progress(len(reports), len(gold) + len(more), "parts")

    read_parts(gold)
    known = frozenset([WORD_SYMBOL, *reports[0].places])
    parts = gold + [
        Part(Corpus(corpus.parts / f"more-{i:05d}"), "train", [source], collection, settings.write_tags, known)
        for i, (collection, source) in enumerate(more)
    ]
    read_parts(parts[len(gold) :])
    splits: dict[str, list[int]] = {split: [] for split in SPLITS}
    counts = {name: dict.fromkeys(SPLITS, 0) for name in ("read", "words", "without_words")}
    collections: list[str] = []
    unseen: dict[str, list[str]] = {}
    for part, report in zip(parts, reports, strict=True):
        split = part.split
        move_shards(part.folder, corpus, split, LANGUAGES, report.shards, splits[split])
        counts["read"][split] += sum(report.shards)
        counts["words"][split] += report.words
        counts["without_words"][split] += report.without_words
        if split == "train":
            collections += [part.collection] * len(report.shards)
            continue
        part.folder.gold_trees(split).rename(corpus.gold_trees(split))
        unseen[split] = sorted(report.places.keys() - known)
        for symbol in unseen[split]:
            log.warning("%s: no training tree has the symbol %s", report.places[symbol], symbol)
    for split, pairs in counts["read"].items():
        if not pairs:
            raise UserError(f"{settings.treebank} has no tree with a word for {split!r}; give a larger treebank")
    shutil.rmtree(corpus.parts)
    write_lines(corpus.symbols_path, sorted(known))
    n_silver = len(gold) + len(settings.silver)
    described = {**counts, "silver": _pairs(reports[len(gold) : n_silver]), "unseen_symbols": unseen}
    if settings.recombination:
        described["recombined"] = _pairs(reports[n_silver:])
    corpus.describe(LANGUAGES, splits, described, collections)
    return corpus


def _more_sources(
    settings: TreebankSettings, train: Sequence[Selection]
) -> Iterator[tuple[str, Selection | Recombination]]:
    """Yields the silver files and the parts of the recombined trees, each with the name of its collection."""
    for path in settings.silver:
        yield path.name, Selection(path)
    if recombination := settings.recombination:
        for part, begin in enumerate(range(0, recombination.trees, PART_TREES)):
            trees = min(PART_TREES, recombination.trees - begin)
            yield RECOMBINED_COLLECTION, Recombination(train, recombination, part, trees)


def _pairs(reports: Sequence[PartReport]) -> int:
    return sum(sum(report.shards) for report in reports)


def read_part(part: Part) -> PartReport:
    """Reads trees into shards of a split, and the gold trees of dev and test into a file of their own.

    Raises UserError, with file and line, for a symbol that is not among the known ones.
    """
    folder, split = part.folder, part.split
    shutil.rmtree(folder.folder, ignore_errors=True)  # left by an attempt that was killed
    folder.folder.mkdir(parents=True)
    counts: Counter[str] = Counter()
    places: dict[str, str] = {}

    def pairs(gold: TextIO) -> Iterator[tuple[str, str]]:
        for placed in chain.from_iterable(source.read() for source in part.trees):
            tree = cleaned(placed.tree)
            if tree is None:
                counts["without_words"] += 1
                continue
            words, symbols = words_of(tree), linearise(tree, part.with_tags)
            if new := set(symbols) - places.keys():
                if part.known is not None and new - part.known:
                    raise _unknown(placed, min(new - part.known))
                places.update(dict.fromkeys(new, placed.place))
            counts["words"] += len(words)
            if split != "train":
                gold.write(bracketed(tree) + "\n")
            yield " ".join(map(one_word, words)), " ".join(symbols)

    with folder.gold_trees(split).open("w", encoding="utf-8", newline="\n") as gold:
        shards = write_shards(folder, split, LANGUAGES, pairs(gold), SHARD_PAIRS)
    return PartReport(shards, counts["words"], counts["without_words"], places)


def _unknown(placed: PlacedTree, symbol: str) -> UserError:
    tag = tag_of(symbol)
    what = f"tag {tag!r}" if tag else f"label {symbol[1:]!r}"
    return UserError(f"{placed.place}: no training tree of the treebank has the {what}")
