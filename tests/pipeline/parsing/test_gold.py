"""Generated trees as symbols, with the gold trees beside them."""

from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.parsing.gold import linearised, read_gold
from pipeline.parsing.linearisation import rebuild
from pipeline.parsing.trees import with_tags_of
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Corpus
from pipeline.text.lines import read_lines, write_lines
from tests.support.tiny_parser import make_trees


def test_gold_trees_words_and_symbols_belong_together(tmp_path: Path) -> None:
    """In each split, line i of words and symbols makes gold tree i, without a repair."""
    corpus = make_trees(tmp_path, train=40)
    assert corpus.languages == ("en", "trees")
    for split in ("dev", "test"):
        gold = read_gold(corpus, split)
        (shard,) = corpus.shards(split)
        lines = list(zip(gold, read_lines(shard.source), read_lines(shard.target), strict=True))
        assert len(lines) == 12
        for tree, words, symbols in lines:
            rebuilt = rebuild(symbols.split(), words.split())
            assert not rebuilt.repairs
            assert with_tags_of(rebuilt.tree, tree) == tree


def test_a_tree_of_traces_alone_is_named(tmp_path: Path) -> None:
    """The line says which file and line has no word."""
    corpus = Corpus(tmp_path / "trees")
    (corpus.folder / "train").mkdir(parents=True)
    write_lines(corpus.shard_path("train", 0, "en"), ["a dog", "nothing"])
    trees = ["(NP (DT a) (NN dog))", "(S (NP (-NONE- *)))"]
    write_lines(corpus.shard_path("train", 0, "trees"), trees)
    corpus.describe(("en", "trees"), {"train": [2]}, {})
    (tmp_path / "made").mkdir()
    with pytest.raises(UserError, match=r"00000\.trees, line 2: the tree holds no word"):
        linearised(Context(tmp_path / "made"), corpus)
