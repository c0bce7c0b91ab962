"""Long lines of the dev set: each is computed whole up to LONGEST_TOKENS, longer ones never."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo

from pipeline.artifacts import Checkpoint, EncodedDataset, EvaluationSet, Vocabulary
from pipeline.errors import UserError
from pipeline.evaluation import perplexity
from pipeline.settings import EncodingSettings
from pipeline.text.encoding import EncodedSplit, encode
from pipeline.training import devices, preflight
from pipeline.training.loop import Training
from pipeline.training.workers import Workers
from pipeline.warning_events import emitting_warnings
from tests.support.contexts import new_context
from tests.support.parallel_text import corpus_of, set_of, text_pairs
from tests.support.tiny_training import TINY, curve, with_fields

LONG, TOO_LONG = 300, 12_000
"""Words of a line that is computed whole, and of a line whose scores would take 1 GB in one layer."""


@pytest.fixture(scope="module")
def encoded(dataset: EncodedDataset, parallel_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`encoded(LONG)` -> the training pairs of `dataset`, and its dev pairs plus one of LONG words."""

    def encoded(*words: int, others: int = 60) -> EncodedDataset:
        folder = tmp_path_factory.mktemp("long")
        train, dev = (text_pairs(parallel_text, f"multi30k/{name}", n) for name, n in (("train", 600), ("val", others)))
        dev[30:30] = [(" ".join(["dog"] * n), "Hund") for n in words]
        corpus = corpus_of(folder / "corpus", train, shard_pairs=250)
        (folder / "vocabulary").mkdir()
        vocabulary = Vocabulary(folder / "vocabulary")
        vocabulary.path.write_bytes((dataset.folder / "joint.model").read_bytes())
        dev_set, settings = set_of(folder / "dev", dev), EncodingSettings(max_tokens=60)
        return encode(new_context(folder / "encoded"), corpus, dev_set, vocabulary, settings)

    return encoded


def test_training_leaves_overlong_dev_pairs_out(encoded: Any, dataset: EncodedDataset, tmp_path: Path) -> None:
    """The curve is bit-identical to a dev set without them. One warning and run.json count them."""
    events, runs = list[dict[str, Any]](), list[Any]()
    for name, on in (("without", dataset), ("with", encoded(TOO_LONG))):
        (tmp_path / name).mkdir()
        training = Training(Workers(), on, with_fields(updates=3), tmp_path / name, events.append)
        runs.append(emitting_warnings(events.append, training.run))
    assert curve(tmp_path / "with") == curve(tmp_path / "without")
    assert [run.dev_left_out for run in runs] == [0, 1]
    (warning,) = (event["warning"] for event in events if "warning" in event)
    assert warning.startswith("1 of 61 dev pairs have a side of more than 1024 tokens")


def test_evaluation_leaves_them_out_too(encoded: Any, trained: Checkpoint, tmp_path: Path) -> None:
    long = encoded(LONG, TOO_LONG)
    dev, split = EvaluationSet(long.folder.with_name("dev")), EncodedSplit.open(long, "dev")
    rows = split.computed_rows
    assert len(rows) == len(split) - 1 == 61
    assert split.source_lengths[rows].max() > LONG
    measured = perplexity.measure(new_context(tmp_path / "perplexity"), trained, dev).load()
    assert measured.tokens == split.target_lengths[rows].sum()


def test_a_dev_set_of_overlong_pairs_is_refused(encoded: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no dev pair of at most 1024 tokens"):
        Training(Workers(), encoded(TOO_LONG, others=0), TINY, tmp_path)


def test_the_dev_batch_is_tried_first(dataset: EncodedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch finds no memory for it, the error is one line, and nothing has been trained."""
    monkeypatch.setattr(preflight, "split_sums", lambda *_, **__: torch.empty(10**15))
    training = Training(Workers(), dataset, TINY, tmp_path)
    with pytest.raises(UserError, match=r"the largest dev batch, \d+ pairs of \d+ and \d+ tokens, does not fit"):
        training.train()
    assert training.state.update == 0


def test_longer_dev_sentences_recompile_nothing(encoded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation on a sentence of 300 tokens recompiles nothing and keeps the positions that a graph reads."""
    torch._dynamo.reset()
    monkeypatch.setattr(devices, "can_pack", lambda *_: True)
    still = replace(TINY.model, dropout=0.0)  # dropout on CPUs cannot be compiled
    training = Training(Workers(), encoded(LONG, others=0), with_fields(dtype="bfloat16", model=still), tmp_path)
    training.step.compiled = True
    model: Any = training.step.model
    table_LD = model._sinusoids_LD
    for layer in (*model.encoder, *model.decoder):
        layer.compile(backend="eager", fullgraph=True, dynamic=False)
    updates = list(training.updates.between(0, 2))
    with torch._dynamo.config.patch(error_on_recompile=True):
        training._update(updates[0])
        training._validate()
        training._update(updates[1])
    assert model._sinusoids_LD is table_LD
