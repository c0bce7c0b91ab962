"""Builds trees from a parser's output for an evaluation set (§6.3), and right-branching trees as a baseline.

    parses = rebuild_parses(Context(folder), hypotheses, test_set)
    parses.trees[0]

The paper's parser writes no part-of-speech tags, but scoring ignores punctuation by its tag. The trees here therefore
carry the gold trees' tags, so tagging accuracy is meaningless.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from pathlib import Path

from pipeline.artifacts import Corpus, EvaluationSet, Hypotheses
from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.parsing.linearisation import Repair, rebuild
from pipeline.parsing.trees import Tree, bracketed, preterminals, read_trees, walk, with_tags_of, words_of
from pipeline.records import Record
from pipeline.store.artifact import JsonArtifact
from pipeline.text.lines import read_lines, read_pairs, write_lines

log = logging.getLogger(__name__)

LABELLED_TREES = 10_000
FINAL_TAGS = (".", "''")
"""Tags of a sentence-final mark."""


class ParsesRecord(Record):
    """`parses.json`: repairs of the output."""

    sentences: int
    repaired: int
    """Number of sentences whose symbols did not form a tree over the words."""
    repairs: Mapping[str, int]
    """Repairs by kind (pipeline.parsing.linearisation.Repair), most frequent first."""


class Parses(JsonArtifact[ParsesRecord]):
    """Trees of an evaluation set and the gold trees: `parsed.trees`, `gold.trees` and `parses.json`.

    Both have one bracketed tree a line, in EVALB's format.
    """

    record_file = "parses.json"

    @property
    def summary(self) -> str:
        """The number of repaired trees."""
        parsed = self.load()
        return f"{parsed.repaired:,} of {parsed.sentences:,} repaired"

    @property
    def trees_path(self) -> Path:
        """The file of the trees."""
        return self.folder / "parsed.trees"

    @property
    def gold_path(self) -> Path:
        """The file of the gold trees."""
        return self.folder / "gold.trees"

    @property
    def trees(self) -> list[Tree]:
        """The trees. Raises UserError if the file is missing or invalid."""
        return _trees(self.trees_path)

    @property
    def gold(self) -> list[Tree]:
        """The gold trees. Raises UserError if the file is missing or invalid."""
        return _trees(self.gold_path)

    def write_trees(self, trees: Iterable[Tree], gold: Iterable[Tree]) -> None:
        """Writes both files."""
        write_lines(self.trees_path, map(bracketed, trees))
        write_lines(self.gold_path, map(bracketed, gold))


def rebuild_parses(context: Context, hypotheses: Hypotheses, text: EvaluationSet) -> Parses:
    """Builds a tree from each line of symbols in `hypotheses`, with the words and tags of the gold tree.

    Raises UserError if the numbers of lines and gold trees differ.
    """
    path = hypotheses.path(text)
    outputs, gold_trees = list(read_lines(path)), _trees(text.gold_trees)
    if len(outputs) != len(gold_trees):
        raise UserError(f"{path} has {len(outputs)} lines, but there are {len(gold_trees)} gold trees; decode again")
    rebuilt = [rebuild(output.split(), words_of(tree)) for output, tree in zip(outputs, gold_trees, strict=True)]
    repairs = sum((each.repairs for each in rebuilt), Counter[Repair]())
    parses = Parses(context.folder)
    trees = (with_tags_of(each.tree, gold) for each, gold in zip(rebuilt, gold_trees, strict=True))
    parses.write_trees(trees, gold_trees)
    by_kind = {kind.value: number for kind, number in repairs.most_common()}
    repaired = sum(bool(each.repairs) for each in rebuilt)
    return parses.write(ParsesRecord(sentences=len(rebuilt), repaired=repaired, repairs=by_kind))


def right_branching(context: Context, corpus: Corpus, text: EvaluationSet) -> Parses:
    """Writes right-branching trees for an evaluation set: a baseline for parsers to beat.

    Each word but the last two begins a constituent that extends to the end of the sentence, or to its final
    punctuation. The root has the most frequent root label of LABELLED_TREES training trees; the others have the most
    frequent label of constituents that end where their sentence does. Warns of symbols that parsers cannot learn,
    because the training trees in `corpus` lack them.
    """
    pairs = chain.from_iterable(read_pairs(shard.source, shard.target) for shard in corpus.shards)
    trees = (rebuild(symbols.split(), words.split()).tree for words, symbols in pairs)
    root, inner = _usual_labels(islice(trees, LABELLED_TREES))
    known = set(corpus.symbols)
    for number, line in enumerate(read_lines(text.references), start=1):
        for symbol in sorted(set(line.split()) - known):
            log.warning("%s, line %d: no training tree has the symbol %s", text.references, number, symbol)
            known.add(symbol)
    parses, gold_trees = Parses(context.folder), _trees(text.gold_trees)
    parses.write_trees((_branching(tree, root, inner) for tree in gold_trees), gold_trees)
    return parses.write(ParsesRecord(sentences=len(gold_trees), repaired=0, repairs={}))


def _trees(path: Path) -> list[Tree]:
    return [placed.tree for placed in read_trees(path)]


def _usual_labels(trees: Iterable[Tree]) -> tuple[str, str]:
    """Returns the most frequent label of roots, and of inner constituents that end where the root or the text does."""
    roots: Counter[str] = Counter()
    inner: Counter[str] = Counter()
    for tree in trees:
        roots[tree.label] += 1
        last = len(words_of(tree)) - _has_final_mark(tree)
        n_words = 0
        for node, entering in walk(tree):
            if node.word:
                n_words += 1
            elif not entering and node is not tree and n_words == last:
                inner[node.label] += 1
    return roots.most_common(1)[0][0], (inner or roots).most_common(1)[0][0]


def _has_final_mark(tree: Tree) -> bool:
    *before, last = preterminals(tree)
    return bool(before) and last.label in FINAL_TAGS


def _branching(tree: Tree, root: str, inner: str) -> Tree:
    """Returns the right-branching tree over the words and tags of `tree`."""
    leaves = list(preterminals(tree))
    final = [leaves.pop()] if _has_final_mark(tree) else []
    node = leaves.pop()
    for leaf in reversed(leaves[1:]):
        node = Tree(inner, [leaf, node])
    return Tree(root, [*leaves[:1], node, *final])
