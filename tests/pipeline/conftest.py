import shutil
from pathlib import Path

import pytest

from pipeline.artifacts import Checkpoint, Corpus, EncodedDataset, EvaluationSet, TrainingRun
from pipeline.context import Context
from pipeline.settings import EncodingSettings
from pipeline.text.batching import plan_epoch
from pipeline.text.encoding import EncodedSplit, encode
from pipeline.text.vocabulary import learn
from pipeline.training.checkpoints import CheckpointWriter
from tests.support.contexts import new_context
from tests.support.parallel_text import corpus_of, set_of, text_pairs
from tests.support.tiny_checkpoint import make_checkpoint, make_corpus, make_set
from tests.support.tiny_records import TRAINING
from tests.support.tiny_text import every_character
from tests.support.tiny_training import EPOCH_UPDATES, PIECES, TINY, free_port, train_in_processes, work


@pytest.fixture
def here(tmp_path: Path) -> Context:
    return new_context(tmp_path / "store" / ".making-stage")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return make_corpus(tmp_path / "corpus")


@pytest.fixture
def first_set(tmp_path: Path) -> EvaluationSet:
    return make_set(tmp_path / "first")


@pytest.fixture
def checkpoint(tmp_path: Path, corpus: Corpus) -> Checkpoint:
    return make_checkpoint(tmp_path / "checkpoint", corpus)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory, parallel_text: Path) -> EncodedDataset:
    """600 training pairs and 60 dev pairs of Multi30k, encoded with 800 pieces: an epoch is EPOCH_UPDATES of TINY."""
    folder = tmp_path_factory.mktemp("dataset")
    train, dev = (text_pairs(parallel_text, f"multi30k/{name}", n) for name, n in (("train", 600), ("val", 60)))
    corpus = corpus_of(folder / "corpus", train, shard_pairs=250)
    vocabulary = learn(new_context(folder / "vocabulary"), corpus, every_character(PIECES))
    dev_set = set_of(folder / "dev", dev)
    encoded = encode(new_context(folder / "encoded"), corpus, dev_set, vocabulary, EncodingSettings(max_tokens=60))
    lengths = EncodedSplit.open(encoded, "train")
    assert len(plan_epoch(lengths.source_lengths, lengths.target_lengths, TINY, epoch=0)) == EPOCH_UPDATES
    return encoded


@pytest.fixture(scope="session")
def dev_set(dataset: EncodedDataset) -> EvaluationSet:
    return EvaluationSet(dataset.folder.with_name("dev"))


@pytest.fixture(scope="session")
def trained(one_worker: Path, dataset: EncodedDataset, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("trained") / "checkpoint"
    shutil.copytree(one_worker / "checkpoints" / f"{TINY.updates:08d}", folder)
    shutil.copyfile(dataset.folder / "joint.model", folder / "joint.model")
    return Checkpoint(folder)


@pytest.fixture(scope="session")
def two_workers(dataset: EncodedDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted TINY run of two processes."""
    return train_in_processes(2, dataset, TINY, tmp_path_factory.mktemp("two_workers"))


@pytest.fixture(scope="session")
def one_worker(dataset: EncodedDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a TINY run in this process, which takes a few seconds."""
    folder = tmp_path_factory.mktemp("one_worker")
    work(0, 1, free_port(), dataset, TINY, folder)
    return folder


@pytest.fixture
def finished_run(one_worker: Path, dataset: EncodedDataset, tmp_path: Path) -> TrainingRun:
    """A copy of `one_worker`, with its vocabulary and `run.json`."""
    run = TrainingRun(shutil.copytree(one_worker, tmp_path / "run"))
    shutil.copyfile(dataset.folder / "joint.model", run.folder / "joint.model")
    return run.write(TRAINING.model_copy(update={"checkpoints": (3, 6, 9)}))


@pytest.fixture
def many_recoveries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this process have a recovery checkpoint at each logged update, however short they are."""
    monkeypatch.setattr(CheckpointWriter, "recovery_is_due", True)
