"""A store with one trained model, as its stages would leave it, without training."""

from pathlib import Path

from pipeline.corpora import embedded
from pipeline.corpora.embedded import EmbeddedSettings
from pipeline.settings import CleaningSettings, EncodingSettings, VocabularySettings
from pipeline.store.artifact import Artifact, Context, publish
from pipeline.store.artifacts import Checkpoint, Corpus, EncodedDataset, EvaluationSet, Vocabulary
from pipeline.store.store import Store
from pipeline.text import cleaning, encoding, vocabulary
from tests.support.tiny_checkpoint import make_checkpoint

CORPUS = EmbeddedSettings(target="de", train_pairs=80, dev_pairs=6, test_pairs=4)


def publish_model(store: Store) -> Checkpoint:
    """Publishes a corpus of generated text, its token ids, and a checkpoint of random weights made from them."""

    def put(stage: str, label: str, inputs: list[dict[str, str]], make, settings: list | None = None) -> Artifact:  # type: ignore[no-untyped-def,type-arg]
        fingerprint = (stage.partition(".")[0][:4] * 4)[:16]
        manifest = {
            "label": label,
            "stage": stage,
            "version": 1,
            "fingerprint": fingerprint,
            "inputs": inputs,
            "settings": settings or [],
        }
        return publish(store.folder(f"{stage.partition('.')[0]}-{fingerprint}"), make, manifest)

    def fingerprints(*artifacts: Artifact) -> list[dict[str, str]]:
        return [{name: artifact.manifest[name] for name in ("label", "fingerprint")} for artifact in artifacts]

    text = put(
        "embedded.generate",
        "generate en-de",
        [],
        lambda folder: embedded.generate(Context(folder), CORPUS.text("train")),
        [CORPUS.text("train").model_dump(mode="json")],
    )
    dev = put(
        "evaluation_set.generate",
        "generate en-de dev",
        [],
        lambda folder: embedded.generate_set(Context(folder), CORPUS.text("dev")),
    )
    clean = put(
        "cleaning.clean",
        "clean en-de",
        fingerprints(text),
        lambda folder: cleaning.clean(Context(folder), Corpus(text.folder), CleaningSettings()),
    )
    settings = VocabularySettings(size=160, character_coverage=1, byte_fallback=False)
    learned = put(
        "vocabulary.learn",
        "vocabulary en-de",
        fingerprints(clean),
        lambda folder: vocabulary.learn(Context(folder), Corpus(clean.folder), settings),
    )
    dataset = put(
        "encoding.encode",
        "encode en-de",
        fingerprints(clean, dev, learned),
        lambda folder: encoding.encode(
            Context(folder),
            Corpus(clean.folder),
            EvaluationSet(dev.folder),
            Vocabulary(learned.folder),
            EncodingSettings(),
        ),
    )
    training = put("training.train", "train en-de base", fingerprints(dataset), lambda folder: Artifact(folder))

    def average(folder: Path) -> Checkpoint:
        checkpoint = make_checkpoint(folder, Corpus(clean.folder), pieces=160)
        checkpoint.write_json("averaging.json", {"updates": [1]})
        return checkpoint

    checkpoint = put("averaging.average", "average en-de base", fingerprints(training), average)
    assert EncodedDataset(dataset.folder).read_json("dataset.json")["vocabulary_size"] == 160
    return Checkpoint(checkpoint.folder)
