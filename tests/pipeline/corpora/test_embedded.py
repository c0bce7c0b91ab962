"""pipeline.corpora.embedded: disjoint splits, independent shards, bounded memory."""

import subprocess
import sys
from itertools import chain

from nltk import Tree

from pipeline.corpora.embedded import SPLITS, EmbeddedSettings, generate, hash_of, split_of
from pipeline.parsing.linearisation import linearise
from pipeline.store.artifact import Context
from pipeline.text.lines import read_lines, read_pairs

SMALL = EmbeddedSettings(train_pairs=700, dev_pairs=40, test_pairs=60, shard_pairs=300)


def generated(folder, settings, **context):
    """Generates a corpus in a new folder."""
    folder.mkdir()
    return generate(Context(folder, **context), settings)


def lines(corpus, split):
    """Reads the pairs of a split."""
    return list(chain.from_iterable(read_pairs(shard.source, shard.target) for shard in corpus.shards(split)))


def test_sizes_shards_and_progress(tmp_path):
    """The corpus has the requested number of pairs in shards of the requested size; progress ends at the total."""
    events = []
    corpus = generated(tmp_path / "corpus", SMALL, emit=events.append)
    assert corpus.languages == ("en", "de")
    assert corpus.splits == ["train", "dev", "test"]
    assert corpus.test_sets == ["test"]
    assert [shard.pairs for shard in corpus.shards("train")] == [300, 300, 100]
    assert {shard.collection for shard in corpus.shards("train")} == {"generated"}
    assert {split: len(lines(corpus, split)) for split in SPLITS} == {"train": 700, "dev": 40, "test": 60}
    assert events[-1] == {"done": 800, "total": 800, "unit": "pairs"}


def test_splits_are_disjoint_and_decided_by_the_sentence(tmp_path):
    """No dev or test sentence is in training or repeated; no other size or seed moves a sentence to another split."""
    corpora = [
        generated(tmp_path / "small", SMALL),
        generated(tmp_path / "other", SMALL.model_copy(update={"seed": 2, "test_pairs": 90})),
    ]
    sources = {
        (number, split): [source for source, _ in lines(corpus, split)]
        for number, corpus in enumerate(corpora)
        for split in SPLITS
    }
    for (_, split), sentences in sources.items():
        assert {split_of(hash_of(sentence)) for sentence in sentences} == {split}
        if split != "train":
            assert len(set(sentences)) == len(sentences)
    assert sources[0, "train"] != sources[1, "train"]
    assert len(set(sources[0, "train"])) > 0.97 * len(sources[0, "train"])


def test_another_process_writes_the_same_shard(tmp_path):
    """A shard does not depend on hash seeds or on what the process did before."""
    corpus = generated(tmp_path / "here", SMALL)
    (tmp_path / "there" / "train").mkdir(parents=True)
    call = f"write_shard({str(tmp_path / 'there')!r}, 'de', 1, 'train', 1, 300)"
    subprocess.run([sys.executable, "-c", f"from pipeline.corpora.embedded import write_shard; {call}"], check=True)
    for language in ("en", "de"):
        there = tmp_path / "there" / "train" / f"00001.{language}"
        assert there.read_bytes() == corpus.shard_path("train", 1, language).read_bytes()


def test_all_targets_share_their_sentences(tmp_path):
    """German, French and trees have the same English side, for trees in the words that are the leaves."""
    corpora = {
        target: generated(tmp_path / target, SMALL.model_copy(update={"target": target}))
        for target in ("de", "fr", "trees")
    }
    german, french, trees = (lines(corpora[target], "test") for target in ("de", "fr", "trees"))
    assert [source for source, _ in german] == [source for source, _ in french]
    gold = [Tree.fromstring(tree) for tree in read_lines(corpora["trees"].gold_trees("test"))]
    for (source, symbols), tree in zip(trees, gold, strict=True):
        assert tree.leaves() == source.split(" ")
        assert linearise(tree) == symbols.split(" ")
    assert german != french
    for (source, _), (tokens, _) in zip(german, trees, strict=True):
        assert source.replace("'", "").split()[0] == tokens.split()[0]
