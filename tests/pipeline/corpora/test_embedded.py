"""pipeline.corpora.embedded: disjoint splits, independent shards, bounded memory."""

import subprocess
import sys
from itertools import chain

import pytest
from nltk import Tree
from pydantic import ValidationError

from pipeline.corpora.embedded import SPLITS, EmbeddedSettings, generate, split_of
from pipeline.parsing.linearisation import linearise
from pipeline.parsing.trees import read_trees
from pipeline.store.artifact import Context
from pipeline.text.lines import read_lines, read_pairs

SMALL = EmbeddedSettings(train_pairs=700, dev_pairs=40, test_pairs=60, shard_pairs=300)


def made(folder, settings, **context):
    """Generates a corpus in a new folder."""
    folder.mkdir()
    return generate(Context(folder, **context), settings)


def lines(corpus, split):
    """Reads the pairs of a split."""
    return list(chain.from_iterable(read_pairs(shard.source, shard.target) for shard in corpus.shards(split)))


def contents(corpus):
    """Maps each file of the folder to its bytes."""
    files = sorted(path for path in corpus.folder.rglob("*") if path.is_file())
    return {str(path.relative_to(corpus.folder)): path.read_bytes() for path in files}


def test_sizes_shards_and_progress(tmp_path):
    """The corpus has the requested number of pairs in shards of the requested size; progress ends at the total."""
    events = []
    corpus = made(tmp_path / "corpus", SMALL, emit=events.append)
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
        made(tmp_path / "small", SMALL),
        made(tmp_path / "other", SMALL.model_copy(update={"seed": 2, "test_pairs": 90})),
    ]
    sources = {
        (number, split): [source for source, _ in lines(corpus, split)]
        for number, corpus in enumerate(corpora)
        for split in SPLITS
    }
    for (_, split), sentences in sources.items():
        assert {split_of(sentence) for sentence in sentences} == {split}
        if split != "train":
            assert len(set(sentences)) == len(sentences)
    assert sources[0, "train"] != sources[1, "train"]
    assert len(set(sources[0, "train"])) > 0.97 * len(sources[0, "train"])


def test_shards_are_independent(tmp_path):
    """Written last to first, from arguments that can be pickled, the files are byte for byte the same."""

    def backwards(function, calls):
        results = [function(*call) for call in reversed(list(calls))]
        return reversed(results)

    assert contents(made(tmp_path / "a", SMALL)) == contents(made(tmp_path / "b", SMALL, map=backwards))


def test_another_process_writes_the_same_shard(tmp_path):
    """A shard does not depend on hash seeds or on what the process did before."""
    corpus = made(tmp_path / "here", SMALL)
    (tmp_path / "there" / "train").mkdir(parents=True)
    call = f"write_shard({str(tmp_path / 'there')!r}, 'de', 1, 'train', 1, 300)"
    subprocess.run([sys.executable, "-c", f"from pipeline.corpora.embedded import write_shard; {call}"], check=True)
    for language in ("en", "de"):
        there = tmp_path / "there" / "train" / f"00001.{language}"
        assert there.read_bytes() == corpus.shard_path("train", 1, language).read_bytes()


def test_all_targets_share_their_sentences(tmp_path):
    """German, French and trees have the same English side, for trees in the words that are the leaves."""
    corpora = {
        target: made(tmp_path / target, SMALL.model_copy(update={"target": target})) for target in ("de", "fr", "trees")
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


def test_trees_come_with_their_symbols(tmp_path):
    """The corpus has what a treebank's has; only its identity, not that of a translation, differs from earlier ones."""
    settings = SMALL.model_copy(update={"target": "trees"})
    corpus = made(tmp_path / "trees", settings)
    assert corpus.symbols == sorted({symbol for _, target in lines(corpus, "train") for symbol in target.split(" ")})
    assert {"(S", ")S", "(NP", ")NP", "XX"} < set(corpus.symbols)
    assert sum(1 for _ in read_trees(corpus.gold_trees("dev"))) == len(lines(corpus, "dev"))
    assert settings.identity() == settings.model_dump(mode="json") | {"linearised": True}
    assert SMALL.identity() == SMALL.model_dump(mode="json")
    assert made(tmp_path / "german", SMALL).symbols == []


def test_settings_are_validated():
    """Sizes below one and unknown targets are refused."""
    for wrong in ({"train_pairs": 0}, {"target": "nl"}, {"shard_pairs": 0}, {"sentences": 3}):
        with pytest.raises(ValidationError):
            EmbeddedSettings(**wrong)


MEASURE = """
import resource, sys
from pathlib import Path
from pipeline.store.artifact import Context
from pipeline.corpora.embedded import EmbeddedSettings, generate
folder = Path(sys.argv[1])
folder.mkdir()
peaks = []
note = lambda event: peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
generate(Context(folder, note), EmbeddedSettings(train_pairs=int(sys.argv[2]), shard_pairs=2_000))
print(peaks[1], peaks[-1])
"""


@pytest.mark.parametrize("pairs", [12_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_the_corpus(tmp_path, pairs):
    """The peak memory of a process after two shards is within 4 MiB of its peak after all shards."""
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "corpus"), str(pairs)]
    early, late = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert late - early < 4 * 1024
