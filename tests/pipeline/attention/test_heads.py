"""The table of heads: known attention gives known figures, and a head switched off is worth what it is worth."""

from pathlib import Path

import pytest
import torch

from pipeline.attention.heads import HeadSettings, HeadsFigures, _figures, examine
from pipeline.attention.recording import KINDS, attentions
from pipeline.evaluation import perplexity
from pipeline.evaluation.translation import load_model
from pipeline.settings import EncodingSettings
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Checkpoint, EncodedDataset, Vocabulary
from pipeline.text import encoding
from pipeline.training.checkpoints import write_weights
from tests.support.tiny_checkpoint import make_checkpoint, make_corpus, write_split


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, EncodedDataset]:
    """A checkpoint of random weights, and a dev split of fourteen pairs in its vocabulary."""
    folder = tmp_path_factory.mktemp("heads")
    corpus = make_corpus(folder / "corpus")
    checkpoint = make_checkpoint(folder / "model", corpus)
    lines = ["Two dogs run over the grass .", "A dog .", "The window is red ."] * 5
    write_split(corpus, "dev", lines[:14])
    corpus.describe(("en", "de"), {"train": [5], "dev": [14]}, {})
    (folder / "vocabulary").mkdir()
    vocabulary = Vocabulary(folder / "vocabulary")
    vocabulary.path.write_bytes((checkpoint.folder / "joint.model").read_bytes())
    (folder / "dataset").mkdir()
    dataset = encoding.encode(Context(folder / "dataset"), corpus, vocabulary, EncodingSettings())
    return checkpoint, dataset


def examined(made: tuple[Checkpoint, EncodedDataset], folder: Path, **settings: int) -> HeadsFigures:
    folder.mkdir(exist_ok=True)
    return examine(Context(folder), *made, HeadSettings(**settings)).load()


def test_figures_of_known_attention() -> None:
    """Uniform attention, one step back, and ⟨end⟩: entropy, distance and shares follow; padding does not count."""
    weights_BHLM = torch.zeros(2, 3, 4, 4, dtype=torch.float64)
    weights_BHLM[:, 0] = 0.25
    for i in range(4):
        weights_BHLM[:, 1, i, max(0, i - 1)] = 1
        weights_BHLM[:, 2, i, 3] = 1
    real_BL = torch.tensor([[True] * 4, [True, False, False, False]])
    separators_BM = torch.tensor([[False, False, False, True]] * 2)
    uniform, back, end = (_figures(weights_BHLM, separators_BM, real_BL) / 5).tolist()
    assert uniform[0] == pytest.approx(2)
    distances = [(0 + 1 + 2) / 3, (1 + 0 + 1) / 3, (2 + 1 + 0) / 3, (3 + 2 + 1) / 3, (0 + 1 + 2) / 3]
    assert uniform[1:] == pytest.approx([sum(distances) / 5, 0.25 * 3 / 5, 0.25, 0.25 * 4 / 5, 0.25])
    assert back == pytest.approx([0, 3 / 5, 3 / 5, 2 / 5, 0, 0])
    assert end == pytest.approx([0, 0, 0, 1 / 5, 1 / 5, 1])


def test_without_a_head_is_without_its_output(made: tuple[Checkpoint, EncodedDataset], tmp_path: Path) -> None:
    """The perplexity is that of a model in which the head's part of W_O is 0."""
    checkpoint, dataset = made
    figures = examined(made, tmp_path / "heads")
    for number, kind in enumerate(KINDS):
        model = load_model(checkpoint.folder)
        with torch.no_grad():
            attentions(model, kind)[0].w_o.weight[:, 8:] = 0  # the second of two heads, d_v 8
        folder = tmp_path / kind
        folder.mkdir()
        write_weights(folder, model.state_dict(), Checkpoint(checkpoint.folder).read_json("model.json"))
        (tmp_path / f"{kind}-perplexity").mkdir()
        measured = perplexity.measure(Context(tmp_path / f"{kind}-perplexity"), Checkpoint(folder), dataset)
        without = figures.heads[2 * number + 1].perplexity_without
        assert without == pytest.approx(measured.load().dev_perplexity, rel=1e-5)
