"""Gold trees beside the pairs of sentences and symbols that a parser is trained on.

corpus = linearised(Context(folder), trees_corpus)
read_gold(corpus, "test")[0]
"""

from collections.abc import Iterator
from pathlib import Path

from nltk.tree import Tree

from pipeline.errors import UserError
from pipeline.parsing.linearisation import linearise
from pipeline.parsing.trees import bracketed, cleaned, read_trees, words_of
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus
from pipeline.text.lines import write_lines, write_pairs


def gold_path(corpus: Corpus, split: str, number: int) -> Path:
    """Returns the path of the gold trees of a shard, one a line."""
    return corpus.shard_path(split, number, "gold")


def read_gold(corpus: Corpus, split: str) -> list[Tree]:
    """Returns the gold trees of a split, all shards in order. Raises UserError if there are none."""
    paths = [gold_path(corpus, split, number) for number in range(len(corpus.shards(split)))]
    return [placed.tree for path in paths for placed in read_trees(path)]


def linearised(context: Context, corpus: Corpus) -> Corpus:
    """Writes symbols in place of the trees of a corpus whose target side is one bracketed tree a line.

    Raises UserError where a tree is malformed or holds no word.
    """
    made, (source, target) = Corpus(context.folder), corpus.languages
    described = corpus.read_json("corpus.json")
    for split in described["splits"]:
        (context.folder / split).mkdir()
        for number, shard in enumerate(corpus.shards(split)):
            trees = list(_trees(shard.target))
            write_lines(gold_path(made, split, number), map(bracketed, trees))
            pairs = ((" ".join(words_of(tree)), " ".join(linearise(tree))) for tree in trees)
            write_pairs(made.shard_path(split, number, source), made.shard_path(split, number, target), pairs)
    made.describe((source, target), described["splits"], described["report"], described["collections"])
    return made


def _trees(path: Path) -> Iterator[Tree]:
    for placed in read_trees(path):
        tree = cleaned(placed.tree)
        if tree is None:
            raise UserError(f"{placed.place}: the tree holds no word; remove it")
        yield tree
