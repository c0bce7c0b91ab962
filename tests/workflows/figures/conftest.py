"""A store with one model, and two sentences it translated."""

import pytest

from pipeline.attention.translated import Attended, AttentionTranslator
from pipeline.settings import DecodingSettings
from pipeline.store.artifacts import Checkpoint
from pipeline.store.store import Store
from tests.support.tiny_model_store import publish_model

SENTENCES = ("The lamp is old, but I like it.", "The man who sees the <b>dog</b> sleeps & dreams.")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with one model, `en-de base`. Tests do not change it, except by stages."""
    made = Store(tmp_path_factory.mktemp("figures") / "runs")
    made.artifacts.mkdir(parents=True)
    publish_model(made)
    return made


@pytest.fixture(scope="session")
def checkpoint(store: Store) -> Checkpoint:
    """The store's model."""
    (folder,) = store.artifacts.glob("averaging-*")
    return Checkpoint(folder)


@pytest.fixture(scope="session")
def translator(checkpoint: Checkpoint) -> AttentionTranslator:
    """The model, ready to translate."""
    return AttentionTranslator(checkpoint.folder, DecodingSettings(dtype="float32", max_extra_tokens=6))


@pytest.fixture(scope="session")
def attended(translator: AttentionTranslator) -> tuple[Attended, ...]:
    """Two sentences, one with markup."""
    return tuple(translator.attend(sentence) for sentence in SENTENCES)
