"""Makes trees of the symbols that a parser wrote for a split (§6.3), and right-branching trees to compare them with.

    parses = rebuild_parses(Context(folder), hypotheses, corpus, ["test"])
    parses.trees("test")[0]

The paper's parser writes no part-of-speech tags, but scoring leaves out punctuation by its tag. So the trees here carry
the tags of the gold trees, whatever a parser writes, and tagging accuracy says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from pipeline.errors import UserError
from pipeline.parsing.linearisation import Repair, rebuild
from pipeline.parsing.trees import (
    bracketed,
    is_preterminal,
    new_tree,
    preterminals,
    read_trees,
    walk,
    with_tags_of,
    words_of,
)
from pipeline.store.artifact import Context, JsonArtifact
from pipeline.store.artifacts import Corpus, Hypotheses
from pipeline.store.figures import Figures
from pipeline.text.lines import read_lines, read_pairs, write_lines

if TYPE_CHECKING:
    from nltk.tree import Tree

LABELLED_TREES = 10_000
FINAL_TAGS = (".", "''")
"""Tags of a mark at the end of a sentence."""


class ParsedSplit(Figures):
    """What was corrected in the output for one split."""

    sentences: int
    repaired: int
    """Sentences whose symbols were not a tree over the words of the sentence."""
    repairs: Mapping[str, int]
    """Repairs by kind (pipeline.parsing.linearisation.Repair), most frequent first."""


class ParsesFigures(Figures):
    """`parses.json`."""

    splits: Mapping[str, ParsedSplit]


class Parses(JsonArtifact[ParsesFigures]):
    """Trees of the sentences of some splits, and the gold ones: `<split>.trees`, `<split>.gold` and `parses.json`.

    Both have one bracketed tree a line, as EVALB reads them.
    """

    figures_file = "parses.json"

    @property
    def summary(self) -> str:
        """How many trees had to be repaired."""
        splits = self.load().splits.items()
        return "; ".join(f"{name}: {parsed.repaired:,} of {parsed.sentences:,} repaired" for name, parsed in splits)

    def trees(self, split: str) -> list[Tree]:
        """Returns the trees of a split. Raises UserError where the file is missing or no trees."""
        return [placed.tree for placed in read_trees(self.folder / f"{split}.trees")]

    def gold(self, split: str) -> list[Tree]:
        """Returns the gold trees of a split. Raises UserError where the file is missing or no trees."""
        return [placed.tree for placed in read_trees(self.folder / f"{split}.gold")]


def read_gold(corpus: Corpus, split: str) -> list[Tree]:
    """Returns the gold trees of a split other than train. Raises UserError if there are none."""
    return [placed.tree for placed in read_trees(corpus.gold_trees(split))]


def rebuild_parses(context: Context, hypotheses: Hypotheses, corpus: Corpus, splits: Sequence[str]) -> Parses:
    """Writes a tree for each line of symbols in `hypotheses`, over the words and with the tags of the gold tree.

    Raises UserError where a split has more or fewer lines than gold trees.
    """
    parses, figures = Parses(context.folder), {}
    for split in splits:
        path = hypotheses.folder / f"{split}.{corpus.languages[1]}"
        outputs, gold_trees = list(read_lines(path)), read_gold(corpus, split)
        if len(outputs) != len(gold_trees):
            raise UserError(
                f"{path} has {len(outputs)} lines, but there are {len(gold_trees)} gold trees; decode again"
            )
        repairs: Counter[Repair] = Counter()
        repaired, lines = 0, []
        for output, tree in zip(outputs, gold_trees, strict=True):
            rebuilt = rebuild(output.split(), words_of(tree))
            repairs += rebuilt.repairs
            repaired += bool(rebuilt.repairs)
            lines.append(bracketed(with_tags_of(rebuilt.tree, tree)))
        write_lines(context.folder / f"{split}.trees", lines)
        write_lines(context.folder / f"{split}.gold", map(bracketed, gold_trees))
        by_kind = {kind.value: number for kind, number in repairs.most_common()}
        figures[split] = ParsedSplit(sentences=len(lines), repaired=repaired, repairs=by_kind)
    parses.write(ParsesFigures(splits=figures))
    return parses


def right_branching(context: Context, corpus: Corpus, splits: Sequence[str]) -> Parses:
    """Writes right-branching trees for the sentences of `splits`: a baseline that a parser must beat.

    Each word but the last two begins a constituent that reaches to the end of the sentence, or to its final
    punctuation. The root has the most frequent label of the roots of LABELLED_TREES training trees, and the others that
    of the constituents that end where their sentence does.
    """
    root, inner = _usual_labels(islice(_training_trees(corpus), LABELLED_TREES))
    figures = {}
    for split in splits:
        gold_trees = read_gold(corpus, split)
        write_lines(context.folder / f"{split}.gold", map(bracketed, gold_trees))
        write_lines(
            context.folder / f"{split}.trees", (bracketed(_branching(tree, root, inner)) for tree in gold_trees)
        )
        figures[split] = ParsedSplit(sentences=len(gold_trees), repaired=0, repairs={})
    parses = Parses(context.folder)
    parses.write(ParsesFigures(splits=figures))
    return parses


def _training_trees(corpus: Corpus) -> Iterator[Tree]:
    for shard in corpus.shards("train"):
        for words, symbols in read_pairs(shard.source, shard.target):
            yield rebuild(symbols.split(), words.split()).tree


def _usual_labels(trees: Iterable[Tree]) -> tuple[str, str]:
    """Returns the most frequent label of roots, and of constituents within that end where the root or the text does."""
    roots: Counter[str] = Counter()
    inner: Counter[str] = Counter()
    for tree in trees:
        roots[tree.label()] += 1
        last = len(words_of(tree)) - _has_final_mark(tree)
        n_words = 0
        for node, entering in walk(tree):
            if is_preterminal(node):
                n_words += 1
            elif not entering and node is not tree and n_words == last:
                inner[node.label()] += 1
    return roots.most_common(1)[0][0], (inner or roots).most_common(1)[0][0]


def _has_final_mark(tree: Tree) -> bool:
    *before, last = preterminals(tree)
    return bool(before) and last.label() in FINAL_TAGS


def _branching(tree: Tree, root: str, inner: str) -> Tree:
    """Returns the right-branching tree over the words and tags of `tree`."""
    leaves = list(preterminals(tree))
    final = [leaves.pop()] if _has_final_mark(tree) else []
    node = leaves.pop()
    for leaf in reversed(leaves[1:]):
        node = new_tree(inner, [leaf, node])
    return new_tree(root, [*leaves[:1], node, *final])
