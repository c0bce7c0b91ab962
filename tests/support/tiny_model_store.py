"""A store with one untrained model, whose text was prepared by the real stages."""

from pipeline.artifacts import Checkpoint, Corpus, EncodedDataset
from pipeline.context import Context
from pipeline.settings import AveragingSettings
from pipeline.store.artifact import Artifact
from pipeline.store.store import Store
from tests.support.tiny_checkpoint import make_checkpoint
from tests.support.tiny_dag import make
from tests.support.tiny_profile import overrides
from workflows import stages
from workflows.engine.dag import Stage
from workflows.profiles.loading import load_profile

SETTINGS = {
    "corpora.en-de": "{train_pairs = 80, dev_pairs = 6, test_pairs = 4}",
    "vocabulary": "{size = 160, character_coverage = 1, byte_fallback = false}",
}
PROFILE = load_profile(overrides=overrides(SETTINGS))
CORPUS = PROFILE.corpora["en-de"]


def _train(context: Context, dataset: EncodedDataset) -> Artifact:
    return Artifact(context.folder)


def _average(context: Context, training: Artifact, settings: AveragingSettings, corpus: Corpus) -> Checkpoint:
    checkpoint = make_checkpoint(context.folder, corpus, pieces=160)
    checkpoint.write_json("averaging.json", {"updates": [1]})
    return checkpoint


def publish_model(store: Store) -> Checkpoint:
    """Publishes generated text, its token ids, and a checkpoint of random weights."""
    text = stages.prepared(PROFILE, "en-de")
    trained = Stage("training.train", _train, Artifact)("train en-de base", text.dataset)
    average = Stage("averaging.average", _average, Checkpoint)
    averaged = average("average en-de base", trained, AveragingSettings(last=1), text.corpus)
    make(store, averaged)
    return averaged.published(store)
