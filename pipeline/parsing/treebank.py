"""Reads a treebank as text: source words, target linearised trees (§6.3), and the gold trees for scoring.

Automatically parsed trees (`silver`) follow the treebank's training split, as in the paper's semi-supervised setting.
They are streamed, and may only have labels of the treebank's own training trees. Recombined trees
(`pipeline.parsing.recombination`) come last.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from pipeline.artifacts import Corpus, EvaluationSet
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.parsing.linearisation import WORD_SYMBOL, linearise, one_word, tag_of
from pipeline.parsing.recombination import Recombination, RecombinationSettings
from pipeline.parsing.splits import SPLITS, Selection, files_behind, splits_of
from pipeline.parsing.trees import Tree, bracketed, cleaned, words_of
from pipeline.settings import AbsolutePath, CleaningSettings, Settings
from pipeline.text.aligned import Pairs, Part, blocks, cached_sha256, write_set
from pipeline.text.amount import Amount
from pipeline.text.cleaning import write_corpus
from pipeline.text.lines import write_lines
from pipeline.text.overlap import check_apart

LANGUAGES = ("en", "trees")
GOLD_COLLECTION, RECOMBINED_COLLECTION = "treebank", "recombined"
PART_TREES = 20_000
"""Recombined trees per shard."""


class TreebankSettings(Settings):
    """The treebank and automatically parsed trees."""

    treebank: AbsolutePath
    """A folder in a layout of `pipeline.parsing.splits`, or a file."""
    silver: tuple[AbsolutePath, ...] = ()
    """Files of automatically parsed trees, plain or gzip."""
    write_tags: bool = False
    """Whether to write a word's part-of-speech tag: "XX/NNP" instead of "XX"."""
    recombination: RecombinationSettings | None = None
    """Additional training trees, recombined from the treebank's constituents."""

    def texts(self) -> "tuple[TreebankSettings, TreebankSet, TreebankSet]":
        """Returns the settings of each split. Raises UserError if a silver file is the treebank's dev or test text."""
        held_out = [path for split in SPLITS[1:] for path in files_behind(self.treebank, split).values()]
        check_apart({"silver": self.silver, "dev or test": held_out})
        dev, test = (TreebankSet(name=name, treebank=self.treebank, write_tags=self.write_tags) for name in SPLITS[1:])
        return self, dev, test

    def amount(self) -> Amount:
        """Returns an unknown size: the number of trees requires reading the files."""
        return Amount()

    def identity(self) -> dict[str, Any]:
        """Depends on the files' content, not their folders. Raises UserError if one cannot be read.

        Excludes files of dev and test sections.
        """
        silver = [cached_sha256(path) for path in self.silver]
        identity = {**_identity(self.treebank, "train", self.write_tags), "silver": silver}
        return identity | ({"recombination": self.recombination.identity()} if self.recombination else {})


class TreebankSet(Settings):
    """The dev set or the test set of a treebank."""

    name: str
    treebank: AbsolutePath
    write_tags: bool = False

    def identity(self) -> dict[str, Any]:
        """Depends on the content of the set's files, like TreebankSettings."""
        return {"name": self.name, **_identity(self.treebank, self.name, self.write_tags)}


def _identity(treebank: Path, split: str, write_tags: bool) -> dict[str, Any]:
    """Returns what determines a split's trees and symbols. Raises UserError if a file cannot be read."""
    digest = hashlib.sha256()
    for name, path in files_behind(treebank, split).items():
        digest.update(f"{name} {cached_sha256(path)}\n".encode())
    return {"treebank": digest.hexdigest(), **({"write_tags": True} if write_tags else {})}


def read(context: Context, settings: TreebankSettings, cleaning: CleaningSettings) -> Corpus:
    """Reads train: gold trees, then silver trees, then recombined ones, each part of which is a task.

    The symbols are the gold trees'. The report has, beside the counts of cleaning, {"without_words": trees left out}.
    Raises UserError if the treebank has no known layout, a tree is malformed, or a silver tree has a label that no gold
    tree has.
    """
    selections, with_tags = splits_of(settings.treebank)["train"], settings.write_tags
    counts, known = Counter(without_words=0), {WORD_SYMBOL}

    def pairs(selections: Sequence[Selection], is_gold: bool) -> Pairs:
        for words, tree, place in _words_and_trees(selections, counts):
            symbols = linearise(tree, with_tags)
            if new := set(symbols) - known:
                if not is_gold:
                    raise _unknown(place, min(new))
                known.update(new)
            yield _line(words), " ".join(symbols)

    def parts() -> Iterator[Part]:
        gold_pairs = 0
        for part in blocks(GOLD_COLLECTION, pairs(selections, True), cleaning.shard_pairs):
            gold_pairs += part.read
            yield part
        if not gold_pairs:
            raise _no_tree(settings.treebank, "train")
        for path in settings.silver:
            yield from blocks(path.name, pairs([Selection(path)], False), cleaning.shard_pairs)
        if recombination := settings.recombination:
            for number, begin in enumerate(range(0, recombination.trees, PART_TREES)):
                trees = min(PART_TREES, recombination.trees - begin)
                source = Recombination(selections, recombination, number, trees)
                yield Part(RECOMBINED_COLLECTION, partial(_recombined, source, with_tags), trees)

    return write_corpus(context, LANGUAGES, parts(), cleaning, symbols=known, report=counts)


def read_set(context: Context, settings: TreebankSet) -> EvaluationSet:
    """Reads a dev or test set with gold trees; reports {"without_words": trees left out}. Raises like `read`."""
    counts = Counter(without_words=0)
    trees = list(_words_and_trees(splits_of(settings.treebank)[settings.name], counts))
    pairs = ((_line(words), " ".join(linearise(tree, settings.write_tags))) for words, tree, _ in trees)
    text = write_set(context, settings.name, LANGUAGES, pairs, report=counts)
    if not trees:
        raise _no_tree(settings.treebank, settings.name)
    write_lines(text.gold_trees, (bracketed(tree) for _, tree, _ in trees))
    return text


def _recombined(source: Recombination, with_tags: bool) -> Pairs:
    trees = _words_and_trees([source], Counter())
    return ((_line(words), " ".join(linearise(tree, with_tags))) for words, tree, _ in trees)


def _words_and_trees(
    sources: Sequence[Selection | Recombination], counts: Counter[str]
) -> Iterator[tuple[list[str], Tree, str]]:
    """Yields the words of each tree that has any, the tree and its place; counts the others."""
    for placed in chain.from_iterable(source.read() for source in sources):
        tree = cleaned(placed.tree)
        if tree is None:
            counts["without_words"] += 1
        else:
            yield words_of(tree), tree, placed.place


def _line(words: Sequence[str]) -> str:
    return " ".join(map(one_word, words))


def _no_tree(treebank: Path, split: str) -> UserError:
    return UserError(f"{treebank} has no tree with a word for {split!r}; use a larger treebank")


def _unknown(place: str, symbol: str) -> UserError:
    tag = tag_of(symbol)
    what = f"tag {tag!r}" if tag else f"label {symbol[1:]!r}"
    return UserError(f"{place}: no training tree of the treebank has the {what}")
