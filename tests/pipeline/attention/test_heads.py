"""The table of heads: values are means of the recorded attention, and a disabled head costs what it contributes."""

import math
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from model.batch import Batch
from model.config import BEGIN_ID, END_ID
from pipeline.attention.heads import examine
from pipeline.attention.recording import attentions, recording
from pipeline.attention.records import KINDS, HeadSettings, HeadsRecord, name_of
from pipeline.evaluation import perplexity
from pipeline.evaluation.translation import load_model
from pipeline.store.artifact import Context
from pipeline.store.artifacts import Checkpoint, EvaluationSet
from pipeline.text.encoding import encoded_set
from pipeline.training.checkpoints import write_weights
from tests.support.parallel_text import set_of
from tests.support.tiny_checkpoint import make_checkpoint, make_corpus


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, EvaluationSet]:
    """A checkpoint of random weights, and a dev set of fourteen pairs of unequal lengths."""
    folder = tmp_path_factory.mktemp("heads")
    checkpoint = make_checkpoint(folder / "model", make_corpus(folder / "corpus"))
    lines = ["Two dogs run over the grass .", "A dog .", "The window is red ."] * 5
    return checkpoint, set_of(folder / "dev", pairwise(lines))


def examined(inputs: tuple[Checkpoint, EvaluationSet], folder: Path, **settings: int) -> HeadsRecord:
    folder.mkdir(exist_ok=True)
    return examine(Context(folder), *inputs, HeadSettings(**settings)).load()


def test_without_a_head_is_without_its_output(inputs: tuple[Checkpoint, EvaluationSet], tmp_path: Path) -> None:
    """The perplexity without a head equals a model's with the head's part of W_O at 0."""
    checkpoint, dev = inputs

    def measured(checkpoint: Checkpoint, name: str) -> float:
        (tmp_path / name).mkdir()
        return perplexity.measure(Context(tmp_path / name), checkpoint, dev).load().dev_perplexity

    record = examined(inputs, tmp_path / "heads")
    assert record.perplexity == pytest.approx(measured(checkpoint, "all"), rel=1e-5)
    for number, kind in enumerate(KINDS):
        model = load_model(checkpoint.folder)
        with torch.no_grad():
            attentions(model, kind)[0].w_o.weight[:, 8:] = 0  # the second of two heads, d_v 8
        folder = tmp_path / kind
        folder.mkdir()
        shutil.copyfile(checkpoint.folder / "joint.model", folder / "joint.model")
        write_weights(folder, model.state_dict(), Checkpoint(checkpoint.folder).read_json("model.json"))
        head = record.heads[2 * number + 1]
        assert head.perplexity_without == pytest.approx(measured(Checkpoint(folder), f"{kind}-perplexity"), rel=1e-5)
        assert head.perplexity_change == head.perplexity_without - record.perplexity


def test_figures_are_means_over_an_even_sample(inputs: tuple[Checkpoint, EvaluationSet], tmp_path: Path) -> None:
    """Each head's row holds its means over all queries of five evenly spaced pairs, fed one by one."""
    checkpoint, dev = inputs
    heads = examine(Context(tmp_path), checkpoint, dev, HeadSettings(sample_pairs=5))
    model = load_model(checkpoint.folder)
    queries: dict[tuple[str, int, int], list[tuple[float, ...]]] = {}
    n_tokens = 0
    with encoded_set(Context(tmp_path), dev, checkpoint.vocabulary) as split:
        sampled = [split.batch(np.array([row])) for row in (0, 3, 6, 10, 13)]
    for source_BS, target_BT in sampled:
        n_tokens += target_BT.numel()
        batch = Batch.padded(source_BS, target_BT, torch.float32)
        with torch.no_grad(), recording(model) as weights:
            model(batch.source, batch.inputs)
        read = [BEGIN_ID, *target_BT[0, :-1].tolist()]
        for kind in KINDS:
            keys = read if kind == "decoder" else source_BS[0].tolist()
            for layer, weights_BHLM in enumerate(getattr(weights, kind), 1):
                for head, weights_LM in enumerate(weights_BHLM[0].tolist(), 1):
                    queries.setdefault((kind, layer, head), []).extend(
                        _by_hand(i, weights_M, keys) for i, weights_M in enumerate(weights_LM)
                    )
    found = heads.load()
    assert (found.pairs, found.tokens) == (5, n_tokens)
    assert [(head.kind, head.layer, head.head) for head in found.heads] == list(queries)
    for head, of_head in zip(found.heads, queries.values(), strict=True):
        means = head.entropy, head.distance, head.previous, head.next, head.same, head.separator
        assert means == pytest.approx(np.mean(of_head, axis=0), abs=1e-5)
    missed = max(found.heads, key=lambda head: head.perplexity_without)
    assert f"without {name_of(missed)} " in heads.summary


def _by_hand(i: int, weights_M: list[float], keys: list[int]) -> tuple[float, ...]:
    """Returns query i's entropy, distance, and attention to the previous, next and same key and to separators."""
    on_text = {j: weight for j, weight in enumerate(weights_M) if keys[j] not in (BEGIN_ID, END_ID)}
    return (
        -sum(weight * math.log2(weight) for weight in weights_M if weight),
        sum(weight * abs(j - i) for j, weight in on_text.items()) / (sum(on_text.values()) or 1),
        *(weights_M[j] if 0 <= j < len(keys) else 0.0 for j in (i - 1, i + 1, i)),
        sum(weights_M) - sum(on_text.values()),
    )
