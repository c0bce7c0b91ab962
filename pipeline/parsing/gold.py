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


def read_gold(corpus: Corpus, split: str) -> list[Tree]:
    """Returns the gold trees of a split other than train. Raises UserError if there are none."""
    return [placed.tree for placed in read_trees(corpus.gold_trees(split))]


def linearised(context: Context, corpus: Corpus) -> Corpus:
    """Writes symbols in place of the trees of a corpus whose target side is one bracketed tree a line.

    Raises UserError where a tree is malformed or holds no word.
    """
    made, (source, target) = Corpus(context.folder), corpus.languages
    described = corpus.read_json("corpus.json")
    symbols: set[str] = set()
    for split in described["splits"]:
        (context.folder / split).mkdir()
        gold: list[str] = []
        for number, shard in enumerate(corpus.shards(split)):
            pairs = []
            for tree in _trees(shard.target):
                written = linearise(tree)
                pairs.append((" ".join(words_of(tree)), " ".join(written)))
                if split == "train":
                    symbols.update(written)
                else:
                    gold.append(bracketed(tree))
            write_pairs(made.shard_path(split, number, source), made.shard_path(split, number, target), pairs)
        if gold:
            write_lines(made.gold_trees(split), gold)
    write_lines(made.symbols_path, sorted(symbols))
    made.describe((source, target), described["splits"], described["report"], described["collections"])
    return made


def _trees(path: Path) -> Iterator[Tree]:
    for placed in read_trees(path):
        tree = cleaned(placed.tree)
        if tree is None:
            raise UserError(f"{placed.place}: the tree holds no word; remove it")
        yield tree
