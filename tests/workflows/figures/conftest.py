import pytest

from pipeline.artifacts import Checkpoint
from pipeline.attention.translated import Attended, AttentionTranslator
from pipeline.settings import DecodingSettings
from pipeline.store.store import Store
from tests.support.tiny_model_store import publish_model

SENTENCES = ("The lamp is old, but I like it.", "The man who sees the <b>dog</b> sleeps & dreams.")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    made = Store(tmp_path_factory.mktemp("figures") / "runs")
    publish_model(made)
    return made


@pytest.fixture(scope="session")
def checkpoint(store: Store) -> Checkpoint:
    (folder,) = store.artifacts.glob("averaging-*")
    return Checkpoint(folder)


@pytest.fixture(scope="session")
def translator(checkpoint: Checkpoint) -> AttentionTranslator:
    return AttentionTranslator(checkpoint.folder, DecodingSettings(dtype="float32", max_extra_tokens=6))


@pytest.fixture(scope="session")
def attended(translator: AttentionTranslator) -> tuple[Attended, ...]:
    return tuple(translator.attend(sentence) for sentence in SENTENCES)
