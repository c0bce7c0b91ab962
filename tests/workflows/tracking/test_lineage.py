"""What MLflow is told of a model is read from the steps that make it."""

from pathlib import Path

from pipeline.store.store import LocalStore
from workflows.profiles.loading import load_profile
from workflows.reproduce_table2 import cells_of
from workflows.tables.measurements import Translation
from workflows.tracking.lineage import inputs_of, settings_of
from workflows.tracking.tracker import flatten


def _evaluation(*overrides: str, model: str = "base") -> Translation:
    (cell,) = cells_of(load_profile(overrides=overrides), ["en-de"], [model])
    return cell


def test_settings_of_every_stage_are_told() -> None:
    """Text, cleaning, vocabulary, encoding, training, averaging and decoding: as the steps have them."""
    told = flatten(settings_of(_evaluation("corpora.en-de.train_pairs=600", "cleaning.max_ratio=3")))
    expected = {
        "corpus.name": "embedded",
        "corpus.train_pairs": 600,
        "cleaning.max_ratio": 3.0,
        "vocabulary.size": 1500,
        "encoding.max_tokens": 256,
        "training.model.d_model": 128,
        "training.optimizer.warmup_steps": 200,
        "averaging.last": 5,
        "decoding.beam_size": 4,
    }
    assert {name: told.get(name) for name in expected} == expected


def test_inputs_are_named_by_the_fingerprints_in_the_store(tmp_path: Path) -> None:
    """Base and big share text and vocabulary; another vocabulary size changes one input, other cleaning both."""
    store = LocalStore(tmp_path)
    text, vocabulary = inputs_of(_evaluation(), store)
    assert [text.name, vocabulary.name] == ["embedded en-de", "embedded en-de vocabulary"]
    assert text.folder == tmp_path / "store" / f"cleaning-{text.fingerprint}"
    assert vocabulary.folder == tmp_path / "store" / f"vocabulary-{vocabulary.fingerprint}"
    assert inputs_of(_evaluation(model="big"), store) == [text, vocabulary]
    resized = inputs_of(_evaluation("vocabulary.size=300"), store)
    assert [resized[0] == text, resized[1] == vocabulary] == [True, False]
    cleaned = inputs_of(_evaluation("cleaning.max_words=9"), store)
    assert [cleaned[0] == text, cleaned[1] == vocabulary] == [False, False]
